"""Every committed number is what it was at an earlier commit, but for those that are listed here.

Intervals of single arms' shares are formed on logits; a law that its own page rejects is drawn no more; a shape that
nobody trains has no rank; a slip of a last digit counts apart. What is listed must have changed, and nothing else may.
"""

import csv
import io
import math
import subprocess

import pytest

from tests.conftest import ROOT

BEFORE = "e9e0614e"
"""The commit before."""
ENDS = {
    "atlas/knowledge_editing": "success; kept; new; old; success where not known before; recall; by relation",
    "capacity/knowledge_capacity": "known; share; first; per total; per active; per flop",
    "laptop/benchmark_scores": "accuracy; accuracy of dense",
    "laptop/training_stability": "spikes; spikes, official start; spikes, own rate",
    "needle/needle": "; ".join(
        f"{what}, {variant}"
        for variant in ("main", "longer", "longer-anew")
        for what in (
            "chosen",
            "generated",
            *(f"depth {depth:g}" for depth in (0, 0.25, 0.5, 0.75, 1)),
            "another key's value",
        )
    ),
    "recall/associative_recall": "all, 65 tokens; first, 65 tokens; all, 129 tokens; first, 129 tokens",
}
"""Panels of data.csv whose intervals are of shares."""
NEW = {
    "leaderboard/leaderboard": {("shape",), ("estimates", "equal-size", "")},
    "ladder/token_ladder": {("estimates", f"lead-falls-with-width-{arm}", "") for arm in ("third", "full")},
    "width/size_ladder": {
        ("estimates", f"lead-{change}", "") for change in ("rises-full", "falls-full", "falls-third")
    },
}
GONE = {
    "width/size_ladder": {("law",), ("misfit",), ("drawn on, fixed",), ("drawn on, grown",)},
    "leaderboard/leaderboard": {
        *((of, "joint-token-mixture", "parameters") for of in ("rank", "best rank", "worst rank")),
        ("ahead of the next", "sparse-experts", "parameters"),
    },
}
"""Rows by panel, or by panel, what and x."""
RENAMED = {"foretold": "predicted", "foretell": "predict"}
"""Words of then, in names and sentences, and those of today: their numbers are compared too."""
SLIPS = "laptop/paper_audit/parameters-and-flops"
"""Claim of which two numbers are slips of a last digit."""


def git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def tables() -> list[str]:
    """The tables of results at that commit; none where the history isn't here, as in an archive."""
    try:
        names = git("ls-tree", "-r", "--name-only", BEFORE, "results/").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in names if name.endswith("/data.csv")]


def alike(now: str, before: str) -> bool:
    if now == before:
        return True
    try:
        return math.isclose(float(now), float(before), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return False


def rows(name: str) -> tuple[list[dict], list[dict]]:
    now = list(csv.DictReader((ROOT / name).open(newline="")))
    before = git("show", f"{BEFORE}:{name}")
    for then, today in RENAMED.items():
        before = before.replace(then, today)
    return now, list(csv.DictReader(io.StringIO(before)))


def without(table: list[dict], named: set[tuple[str, ...]]) -> list[dict]:
    return [row for row in table if not {(row.get("panel"),), tuple(map(row.get, ("panel", "what", "x")))} & named]


@pytest.mark.parametrize("name", tables())
def test_numbers_stay(name):
    place, (now, before) = name.removeprefix("results/").removesuffix("/data.csv"), rows(name)
    now, before = without(now, NEW.get(place, set())), without(before, GONE.get(place, set()))
    assert len(now) == len(before)
    assert now[0].keys() == before[0].keys()
    changed = {
        (theirs.get("panel", ""), column)
        for mine, theirs in zip(now, before, strict=True)
        for column in mine
        if not alike(mine[column], theirs[column])
    }
    ends = ENDS[place].split("; ") if place in ENDS else []
    assert changed == {(panel, end) for panel in ends for end in ("ci_low", "ci_high")}


@pytest.mark.skipif(not tables(), reason="the history isn't here")
def test_claims_stay():
    now, before = (
        {"{scale}/{recipe}/{claim}".format(**row): row | {"metric": ""} for row in table}  # its spelling changed
        for table in rows("results/claims.csv")
    )
    now = {name: row for name, row in now.items() if row["scale"] not in ("smollm2", "sizes")}
    assert now.keys() == before.keys()
    assert {name for name in now if now[name] != before[name]} == {SLIPS}
    assert (before[SLIPS]["verdict"], now[SLIPS]["verdict"]) == ("contradicted", "supported")
