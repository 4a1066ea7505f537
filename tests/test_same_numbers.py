"""Every committed number is what it was at an earlier commit, but for those that are listed here.

The default study became half as large. Rows of arms that left it are gone. STEM 1/2, the removed up-projection and two
further stages have three seeds of five, and all short runs are at own rates. What is listed must have changed, and
nothing else may.
"""

import csv
import io
import math
import subprocess
from collections import Counter

import pytest

from tests.conftest import ROOT

BEFORE = "11ce237c"
"""The commit before."""
MOVED = {"laptop/table_design": "tables/table_design"}
CHANGED = {
    "laptop/ablation_graveyard": {"stem-half", "up-removed", "half-over-third", "half-over-full"},
    "laptop/benchmark_scores": {"stem-half", "half-average"},
    "laptop/mid_training": {"stem-full", "anew-20-full", "anew-320-full"},
    "laptop/rivals": {"up-removed", "table-at-equal-flops"},
    "laptop/training_roi": {"stem-half", "roi-half"},
    "laptop/training_stability": {"rate-limit-over-dense", "rate-limit-over-hash"},
    "laptop/validation_loss": {"stem-half", "half-below-dense"},
}
"""Arms and estimates with a row whose number is another."""
NEW = {place: {"stem-frozen"} for place in ("laptop/ablation_graveyard", "laptop/rivals")}
"""Arms with a row that was not there: at the official start."""
OWN = {"end, clipped": "end", "end, own": "end", "limit, own": "limit", "sensitivity, own": "sensitivity"}
"""Panels of short runs, whose names tell no rates apart any more."""
NUMBERS = ("value", "ci_low", "ci_high", "count", "seeds", "item_se", "by_seed")


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


def rows(text: str, renamed: bool = False) -> dict[tuple, dict[str, str]]:
    """Return numbers by all else that a row says, first the arm or the estimate; `renamed`: under today's panels."""
    found, seen = {}, Counter()
    for row in csv.DictReader(io.StringIO(text)):
        if renamed and row.get("what") != "dense" and row.get("panel") in ("end, clipped", "limit", "sensitivity"):
            continue  # at the common rate
        panel = OWN.get(row.get("panel"), row.get("panel")) if renamed else row.get("panel")
        about = {key: value for key, value in row.items() if key not in NUMBERS} | {"panel": panel}
        key = (row.get("arm") or row.get("what"), *about.values())
        found[*key, seen[key]] = {name: row[name] for name in NUMBERS if name in row}
        seen[key] += 1
    return found


@pytest.mark.parametrize("name", tables())
def test_numbers_stay(name):
    place = name.removeprefix("results/").removesuffix("/data.csv")
    before = rows(git("show", f"{BEFORE}:{name}"), renamed=place == "laptop/training_stability")
    now = rows((ROOT / "results" / MOVED.get(place, place) / "data.csv").read_text(encoding="utf-8"))
    assert place.startswith("laptop/") or before.keys() <= now.keys()
    assert {key[0] for key in now.keys() - before.keys()} == NEW.get(place, set())
    changed = {
        key[0] for key in now.keys() & before.keys() if not all(map(alike, now[key].values(), before[key].values()))
    }
    assert changed == CHANGED.get(place, set())


@pytest.mark.skipif(not tables(), reason="the history isn't here")
def test_claims_stay():
    assert (ROOT / "results/claims.csv").read_text(encoding="utf-8") == git("show", f"{BEFORE}:results/claims.csv")
