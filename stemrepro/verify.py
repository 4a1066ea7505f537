"""Compares the verdicts in the working tree with the committed ones: does the reproduction reproduce?"""

import json
import subprocess
from pathlib import Path

from rich.console import Console

from stemrepro.errors import UserError
from stemrepro.provenance import provenance
from stemrepro.report.files import read_json


def committed(path: Path) -> object | None:
    """A JSON file of the commit, or None where the commit has none."""
    shown = subprocess.run(["git", "show", f"HEAD:./{path.as_posix()}"], capture_output=True, text=True)
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def committed_recipes(folder: Path) -> set[str]:
    """The recipes that have verdicts in the commit.

    Raises:
        UserError: there is no commit to compare with.
    """
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", f"{folder.as_posix()}/"]
    shown = subprocess.run(command, capture_output=True, text=True)
    if shown.returncode:
        raise UserError(f"verify compares with the committed results, but git says: {shown.stderr.strip()}")
    return {Path(line).parent.name for line in shown.stdout.splitlines() if line.endswith("/verdicts.json")}


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


def differences(here: dict, there: dict) -> list[str]:
    """What differs between this machine and the one of the committed results: processor, Python, packages."""
    found = (
        [f"machine: {there['machine']} there, {here['machine']} here"] if here["machine"] != there["machine"] else []
    )
    names = sorted(here["versions"].keys() | there["versions"].keys())
    pairs = [(name, there["versions"].get(name, "none"), here["versions"].get(name, "none")) for name in names]
    return found + [f"{name}: {old} there, {new} here" for name, old, new in pairs if old != new]


def verify(scale: str, results: Path, console: Console) -> bool:
    """Prints the comparison for every recipe of a scale; True if all committed verdicts came out the same.

    Raises:
        UserError: there are no verdicts to compare.
    """
    folder = results / scale
    present = {path.parent.name for path in folder.glob("*/verdicts.json")}
    if not present:
        raise UserError(f"{folder} has no verdicts; run 'dvc repro' first")
    reference = committed_recipes(folder)
    kept = total = 0
    others: dict[str, None] = {}
    for name in sorted(present | reference):
        path, before = folder / name / "verdicts.json", committed(folder / name / "verdicts.json")
        if before is None:
            console.print(f"{name}: no committed verdicts for scale '{scale}' to compare with")
            continue
        ours = read_json(path) if path.exists() else []
        same, changed, (deviation, claim) = compare(ours, before)
        kept, total = kept + same, total + len(before) + sum(line.endswith(": new") for line in changed)
        where = f" of its interval's half width ({claim})" if claim else ""
        console.print(f"{name}: {same} of {len(before)} committed verdicts came out the same")
        console.print(f"  largest deviation: {deviation:.2f}{where}")
        for line in changed:
            console.print(f"  {line}")
        if about := committed(folder / name / "provenance.json"):
            others |= dict.fromkeys(differences(provenance(), about))
    if total:
        sentence = "the reproduction reproduces" if kept == total else "the reproduction does not reproduce"
        console.print(f"{kept} of {total} verdicts are the committed ones: {sentence}")
        console.print(
            "\n".join(["this machine differs from the committed results':", *map("  {}".format, others)])
            if others
            else "same processor, Python and packages as the committed results"
        )
    return kept == total
