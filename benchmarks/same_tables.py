"""Do the studies of published models give the tables that they gave at an earlier commit?

    python -m benchmarks.same_tables COMMIT [--adopt SCALE]

Their keys hash the code, so that any edit makes committed tables those of other code. This makes a small version of
every study of stemrepro.published in both trees: on a tiny model, a made-up text, and a run of seconds. The text of the
vendored sample and its items are compared too. Exit code 1: some tables differ, in values and not in bytes alone. What
is timed isn't compared. With --adopt, tables of a scale that were made by the code of COMMIT are marked as made by
today's, where all are the same.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.same_losses import ROOT, run_child, tree_of
from stemrepro.common.files import read_json
from stemrepro.measures.catalog import load
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.reproduce import studies_of
from stemrepro.pipeline.study import study_steps

TIMED = ["seconds", "disk", "date"]
CHILD = '''
"""Makes all studies of this tree; the tiny model and the run are those of its own tests."""
import json
import os
import shutil
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stemrepro.config.sources import SOURCES
from stemrepro.data.archives import BENCHMARKS, pinned
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.reproduce import studies_of
from stemrepro.pipeline.study import study_steps
from stemrepro.published import edits, scoreboard, serving, sizes
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.published.conftest import write

OUT = Path(os.environ["SAME_TABLES_OUT"])
NAMES = ("A", "B", "C", "AB", "ABC")
QUESTION = {"cluster": "", "evidence": "", "query": "the is", "choices": ["the the the", "12"], "gold": 0}
MMLU = {"question": "the x?", "options": "A. is\\nB. the the\\nC. 1", "answer": "C. 1"}
SMALL = {"CONTEXTS": (8, 16), "STEPS": {8: 2, 16: 1}, "BATCHES": (1, 2), "LONGEST": 16, "MATRIX": 4096, "ROUNDS": 2}


def text(seed):
    """Words, names and numbers in any order."""
    words = np.array(["the", "is", "t", "12", "sun", "moon", *NAMES])
    return " ".join(np.random.default_rng(seed).choice(words, 4000))


def country(name, number):
    """A country as the factbook has it, with answers that begin with other tokens than its neighbours'."""
    answers = ("thex", "isx", "tx", "ax", "the")
    fields = {
        ("Government", "Country name", "conventional short form"): name,
        ("Government", "Capital", "name"): answers[number],
        ("Economy", "Exchange rates", "Currency"): answers[number - 1],
        ("People and Society", "Nationality", "adjective"): answers[number - 2],
        ("Geography", "Map references"): answers[number - 3],
        ("Communications", "Internet country code"): f".{'abcde'[number]}x",
    }
    about = {}
    for path, value in fields.items():
        place = about
        for key in path:
            place = place.setdefault(key, {})
        place["text"] = value
    return about


def test_make(llama, make_run, sample, catalog, tmp_path, monkeypatch):
    if scale := os.environ["SAME_TABLES_SCALE"]:
        steps = study_steps(make_plan(scale, (), catalog), studies_of(catalog, catalog.at(scale).recipes))
        (OUT / "keys.txt").write_text(json.dumps({step.name: step.key for step in steps}))
    for part in ("corpus", "items"):
        shutil.copytree(sample / part, OUT / "sample" / part)
    run, home = make_run("dense"), tmp_path / "data/text"
    train(run, quiet)
    monkeypatch.chdir(tmp_path)
    for folder in ("recipes", "models/tiny", "data/tiny/rows", "data/text/raw", "data/text/items", "data/text/corpus"):
        Path(folder).mkdir(parents=True)
    Path("recipes/models.yaml").write_text("tiny: {label: tiny, archive: a==1, sha256: b, file: c}")
    write(llama, Path("models/tiny/model.gguf"))
    sources = ("speeches", "bible", "plays", "passages", "factbook")
    rows = [
        {"source": source, "id": f"{split}/{copy}", "split": split, "text": text([place, copy])}
        for place, (source, split) in enumerate((a, b) for a in sources for b in ("train", "tune", "validation"))
        for copy in range(8)
    ]
    pd.DataFrame(rows).to_parquet(home / "corpus/corpus.parquet")
    files = {f"xx/{name}.json": json.dumps(country(name, number)) for number, name in enumerate(NAMES)}
    held = {SOURCES["factbook"]["archive"]: files, BENCHMARKS: {scoreboard.MMLU: f"{json.dumps(MMLU)}\\n" * 4}}
    for archive in (archive for archive in pinned() if archive.name in held):
        stem = archive.requirement.replace("-", "_").replace("==", "-")
        with zipfile.ZipFile(home / f"raw/{stem}-py3-none-any.whl", "w") as wheel:
            for name, content in held[archive.name].items():
                wheel.writestr(name, content)
    lines = [json.dumps(QUESTION | {"id": f"piqa/{number}"}) for number in range(4)]
    (home / "items/piqa.jsonl").write_text("\\n".join(lines))
    monkeypatch.setattr(edits, "knows", lambda _, questions: set(questions))
    monkeypatch.setattr(scoreboard, "ITEMS", {"piqa": 3, "mmlu_cloze": 2})
    for name, value in SMALL.items():
        monkeypatch.setattr(serving, name, value)
    monkeypatch.setattr(sizes, "ROWS", 64 * run.training.sequence)
    monkeypatch.setattr(sizes, "ASKED", 8 * run.training.sequence)
    given = ("tiny", home / "corpus/corpus.parquet", Path("data/tiny/rows"))
    import_module("stemrepro.published.rows").make(*given)
    for study in ("premise", "spread", "capacity", "edits", "conversion", "scoreboard", "serving"):
        (OUT / study).mkdir()
        import_module(f"stemrepro.published.{study}").make(*given, OUT / study)
    (OUT / "sizes").mkdir()
    sizes.make([run], OUT / "sizes")
'''


def made(place: Path, out: Path, scale: str) -> Path:
    """Make the tables of a tree in a folder, with the keys of a scale's studies there; return the folder."""
    out.mkdir()
    plugins = ["tests.conftest", "tests.published.conftest"]
    run_child(place, CHILD, plugins, SAME_TABLES_OUT=out, SAME_TABLES_SCALE=scale)
    return out


def difference(before: Path, now: Path) -> str:
    """Return in which columns the table of a file differs in two trees; "" where it doesn't."""
    if not (before.exists() and now.exists()):
        return f"only {'here' if now.exists() else 'there'}"
    if before.read_bytes() == now.read_bytes():
        return ""
    if now.suffix != ".parquet":
        return "other bytes"
    old, new = (pd.read_parquet(path).drop(columns=TIMED, errors="ignore") for path in (before, now))
    if list(old) != list(new) or len(old) != len(new):
        return f"{len(old)} rows of {list(old)} there, {len(new)} of {list(new)} here"
    return ", ".join(column for column in old if not old[column].equals(new[column]))


def adopt(scale: str, before: dict[str, str]) -> list[str]:
    """Mark tables, made by the code that has the keys `before`, as made by today's; return their steps' names."""
    catalog, adopted = load(), []
    for step in study_steps(make_plan(scale, (), catalog), studies_of(catalog, catalog.at(scale).recipes)):
        record = step.home / "made.json"
        made_by = read_json(record).get(step.name) if record.exists() else None
        if made_by is not None and made_by == before.get(step.name):
            step.record()
            adopted.append(step.name)
    return adopted


def main() -> None:
    """Print a line per table that differs, and the count of those that don't."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--adopt", metavar="SCALE", default="", help="keep this scale's tables where all are the same")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tree_of(options.commit) as place:
        before = made(place, Path(folder, "before"), options.adopt)
        now = made(ROOT, Path(folder, "now"), options.adopt)
        tables = {path.relative_to(home) for home in (before, now) for path in home.rglob("*.[jp]*")}
        found = {name: words for name in sorted(tables) if (words := difference(before / name, now / name))}
        keys = json.loads((before / "keys.txt").read_text(encoding="utf-8")) if options.adopt else {}
    print(*(f"{name}: {words}" for name, words in found.items()), sep="\n")
    print(f"{len(tables) - len(found)} of {len(tables)} tables are those of {options.commit}")
    if options.adopt and not found:
        adopted = adopt(options.adopt, keys)
        print(f"scale '{options.adopt}': kept as made by today's code: {', '.join(adopted) or 'nothing'}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
