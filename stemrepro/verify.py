"""Compares the verdicts in the working tree with the committed ones: does the reproduction reproduce?"""

import json
import subprocess
from pathlib import Path

from rich.console import Console

from stemrepro.errors import UserError


def committed(path: Path) -> list[dict] | None:
    """The verdicts of the commit, or None where the commit has none."""
    shown = subprocess.run(["git", "show", f"HEAD:./{path.as_posix()}"], capture_output=True, text=True)
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def compare(ours: list[dict], reference: list[dict]) -> tuple[int, list[str], tuple[float, str]]:
    """How many verdicts are the same, the changed ones in words, and the largest deviation.

    The deviation of a claim is the change of its effect over half the width of its committed interval.
    """
    before, same, changed, largest = {row["claim"]: row for row in reference}, 0, [], (0.0, "")
    for row in ours:
        old = before.get(row["claim"])
        if old is None:
            changed.append(f"{row['claim']}: new")
            continue
        if row["verdict"] == old["verdict"]:
            same += 1
        else:
            changed.append(f"{row['claim']}: {old['verdict']} -> {row['verdict']}")
        if None not in (row["ours"], old["ours"], old["ci_low"], old["ci_high"]) and old["ci_high"] > old["ci_low"]:
            deviation = 2 * abs(row["ours"] - old["ours"]) / (old["ci_high"] - old["ci_low"])
            if deviation > largest[0]:
                largest = (deviation, row["claim"])
    changed += [f"{name}: gone" for name in before.keys() - {row["claim"] for row in ours}]
    return same, changed, largest


def verify(scale: str, results: Path, console: Console) -> bool:
    """Prints the comparison for every recipe of a scale; True if all committed verdicts came out the same.

    Raises:
        UserError: there are no verdicts to compare.
    """
    paths = sorted((results / scale).glob("*/verdicts.json"))
    if not paths:
        raise UserError(f"{results / scale} has no verdicts; run 'dvc repro' first")
    good = True
    for path in paths:
        ours, reference = json.loads(path.read_text()), committed(path)
        if reference is None:
            console.print(f"{path.parent.name}: no committed verdicts for scale '{scale}' to compare with")
            continue
        same, changed, (deviation, claim) = compare(ours, reference)
        good = good and not changed
        where = f" of the interval's half width ({claim})" if claim else ""
        console.print(f"{path.parent.name}: {same} of {len(reference)} committed verdicts came out the same")
        console.print(f"  largest deviation: {deviation:.2f}{where}")
        for line in changed:
            console.print(f"  {line}")
    return good
