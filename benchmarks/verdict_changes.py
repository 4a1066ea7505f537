"""Which claims have another word than at a commit?

    python -m benchmarks.verdict_changes COMMIT

A line of Markdown per claim: its name, its words then and now, its effects with their intervals, and today's reason.
Words of rules before 2026-11-26 are told as they were.
"""

import argparse
import json
import subprocess
from pathlib import Path

from stemrepro.report.words import number

OLD = {"reproduced": "supported", "direction only": "supported", "inconclusive": "undecided"}
OLD |= {"not testable at this scale": "not tested"}
"""What words of the old rule are called now, where nothing but the name changed."""


def effect(row: dict) -> str:
    """Write a claim's number with its interval."""
    if row["ours"] is None:
        return "-"
    ends = "" if row["ci_low"] is None else f" ({number(row['ci_low'])} to {number(row['ci_high'])})"
    return f"{number(row['ours'])}{ends}"


def changes(commit: str, results: Path = Path("results")) -> list[str]:
    """Return a line per claim whose word isn't the old one under its new name; also for claims that are gone or new."""
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", commit, "--", f"{results}/"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    lines = []
    for path in (Path(line) for line in listed if line.endswith("/verdicts.json")):
        shown = subprocess.run(["git", "show", f"{commit}:{path}"], capture_output=True, text=True, check=True).stdout
        now = {row["claim"]: row for row in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
        before = {row["claim"]: row for row in json.loads(shown)}
        for key in dict.fromkeys([*before, *now]):
            old, new = before.get(key), now.get(key)
            words = [row["verdict"] if row else "no claim" for row in (old, new)]
            if OLD.get(words[0], words[0]) == words[1]:
                continue
            effects = [effect(row) if row else "-" for row in (old, new)]
            why = new["reason"] if new else "no longer a claim"
            lines.append(f"| {path.parts[-2]}/{key} | {' | '.join(words)} | {' | '.join(effects)} | {why} |")
    return lines


def main() -> None:
    """Print the list for a commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    lines = changes(parser.parse_args().commit)
    print("\n".join(["| claim | then | now | effect then | now | why |", "|---|---|---|---|---|---|", *lines]))


if __name__ == "__main__":
    main()
