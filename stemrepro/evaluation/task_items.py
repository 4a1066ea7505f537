"""Reader that our task files name: the items of a task, from the folder that `stemrepro data items` wrote."""

import json
from pathlib import Path

from datasets import Dataset

from stemrepro.common.errors import UserError


def load(task: str, items: str | None = None, **_: object) -> dict[str, Dataset]:
    """Return the items of one task. UserError: no folder given, no such file, or an item without a right answer."""
    if items is None:
        raise UserError(f"task '{task}': where its items lie is not given; pass metadata={{'items': FOLDER}}")
    path = Path(items) / f"{task}.jsonl"
    if not path.exists():
        raise UserError(f"{path} is missing: this mix has no items for '{task}', or 'stemrepro data items' didn't run")
    rows = []
    text = path.read_text(encoding="utf-8").removesuffix("\n")
    for number, line in enumerate(text.split("\n") if text else [], 1):
        try:
            row = json.loads(line)
            whole = row["query"] and 0 <= row["gold"] < len(row["choices"]) and all(row["choices"])
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise UserError(f"{path}, line {number}: an item needs query, choices and gold, the right one's place")
        rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no items; leave task '{task}' out of the scale's benchmarks")
    return {"test": Dataset.from_list(rows)}
