"""Comparison of the results in the working tree with the committed ones: verdicts, their numbers and data.csv."""

import csv
import itertools
import json
import math
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.paths import SCORES
from stemrepro.common.provenance import machine
from stemrepro.report.verdicts import read_verdicts
from stemrepro.verdicts.rule import UNDECIDED

MOST = 0.5
"""Largest deviation of a number that still counts as the same, over half the width of the committed interval."""
NUMBERS = ("ours", "ci_low", "ci_high")
SHOWN = 15


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"verify compares with the committed results, but git can't be run ({error})") from error


def committed(path: Path) -> str | None:
    """Return the text of a file in the commit, or None where the commit lacks it."""
    shown = _git("show", f"HEAD:./{path.as_posix()}")
    return None if shown.returncode else shown.stdout


def committed_recipes(folder: Path) -> set[str]:
    """Return the recipes that have verdicts in the commit; UserError where there is no commit to compare with."""
    held = _git("rev-parse", "HEAD:./")  # fails in a copy that another repository lies around
    if held.returncode:
        raise UserError(
            f"verify compares with the committed results, but git says: {' '.join(held.stderr.split())}; "
            "an unpacked archive gets a commit by git init -q && git add -A && git commit -qm stemrepro"
        )
    names = _git("ls-tree", "-r", "--name-only", "HEAD", f"{folder.as_posix()}/").stdout.splitlines()
    return {Path(name).parent.name for name in names if name.endswith("/verdicts.json")}


def far(now: dict[str, Any], before: dict[str, Any]) -> str:
    """Return which number of a claim isn't near the committed one; "" where all are.

    Near is within MOST of half the width of the committed interval; without an interval numbers must be equal.
    """
    low, high = before["ci_low"], before["ci_high"]
    most = MOST * (high - low) / 2 if None not in (low, high) else 0.0
    for name in NUMBERS:
        new, old = now[name], before[name]
        if (new is None) != (old is None) or (new is not None and not math.isclose(new, old, abs_tol=most)):
            return f"{name} {old} -> {new}"
    return ""


def change(now: dict[str, Any] | None, before: dict[str, Any]) -> str:
    """Return in what a claim differs from the committed one; "" where its verdict is the same and its numbers near."""
    if now is None:
        return "gone"
    if now["verdict"] != before["verdict"]:
        return f"{before['verdict']} -> {now['verdict']}"
    return far(now, before)


def turned(now: dict[str, Any] | None, before: dict[str, Any]) -> bool:
    """Tell whether a claim became undecided, or decided, although its numbers are near: its interval ends near zero."""
    if now is None or now["verdict"] == before["verdict"]:
        return False
    return UNDECIDED in (now["verdict"], before["verdict"]) and not far(now, before)


def alike(new: Any, old: Any) -> bool:
    """Tell whether two cells of a table are equal, or numbers but for last digits, which depend on the processor."""
    try:
        return new == old or math.isclose(float(new), float(old), rel_tol=1e-4, abs_tol=2e-6)
    except (TypeError, ValueError):
        return False


def first_change(new: str, old: str) -> str:
    """Return where the text of a CSV file differs from the committed one by more than last digits; "" if nowhere."""
    tables = [list(csv.reader(text.splitlines())) for text in (new, old)]
    for line, (now, before) in enumerate(itertools.zip_longest(*tables, fillvalue=()), 1):
        for cell, was in itertools.zip_longest(now, before):
            if not alike(cell, was):
                return f"data.csv, line {line}: {was} -> {cell}"
    return ""


def drawn_on(folder: Path, names: Iterable[str]) -> str:
    """Return the machines on which committed results were drawn; older ones name no instruction sets."""
    texts = filter(None, (committed(folder / name / "provenance.json") for name in names))
    machines = sorted({json.loads(text)["machine"] for text in texts})
    named = (name if "[" in name else f"{name}, instruction sets unknown" for name in machines)
    return "; ".join(named) or "unknown machines"


def verify(scale: str, results: Path, console: Console) -> int:
    """Print what of a scale's results differs from the committed ones; UserError: there are no verdicts to compare.

    data.csv is compared where the scores are the committed ones, as it follows from them.

    Returns:
        0 if all is the same and something was scored here, 1 if something differs, 3 if nothing was scored here.
        A claim that `turned` with new scores is printed and not counted.
    """
    folder, scores = results / scale, SCORES / scale
    paths = {path.parent.name: path for path in folder.glob("*/verdicts.json")}
    if not paths:
        raise UserError(f"{folder} has no verdicts; run 'make reproduce SCALE={scale}' first")
    reference, count = committed_recipes(folder), 0
    changes, near = list[tuple[str, str]](), list[tuple[str, str]]()
    same_scores = not _git("status", "--porcelain", "--", scores.as_posix()).stdout
    for name in sorted(reference):
        now = {row["claim"]: row for row in (read_verdicts(paths[name]) if name in paths else [])}
        before = {row["claim"]: row for row in json.loads(committed(folder / name / "verdicts.json") or "[]")}
        count += len(before)
        for claim, row in before.items():
            found = change(now.get(claim), row)
            aside = not same_scores and turned(now.get(claim), row)
            (near if aside else changes).append((f"{name}/{claim}", found))
        changes += [(f"{name}/{claim}", "new") for claim in now.keys() - before.keys()]
        data = folder / name / "data.csv"
        if same_scores and (old := committed(data)) is not None:
            found = first_change(data.read_text(encoding="utf-8"), old) if data.exists() else "no data.csv"
            changes.append((name, found))
    wrong = [f"  {what}: {words}" for what, words in changes if words]
    told = scores.rglob("provenance.json")  # git holds none of them
    made = sum(len(read_json(path)) if path.parent == scores else 1 for path in told)
    lines = [f"{scale}: {count} committed claims in {len(reference)} recipes, {len(wrong)} differences", *wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        lines.append(f"  and {len(wrong) - SHOWN} more")
    lines += [f"  {what}: {words}, and its numbers are near: no difference" for what, words in near]
    if alone := sorted(paths.keys() - reference):
        lines.append(f"no committed verdicts for scale '{scale}': {', '.join(alone)}")
    if made:
        lines.append(f"{made} scores were made here, on {machine()}; numbers may deviate by half of an error bar")
        lines.append(f"committed results were drawn on {drawn_on(folder, reference)}")
    else:
        lines.append(f"nothing was scored here, so this vouches for no run: 'make reproduce SCALE={scale}'")
    console.print("\n".join(lines), highlight=False, markup=False)
    return 1 if wrong else 0 if made and count else 3
