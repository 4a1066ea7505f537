"""Every committed number is what it was before the project was made smaller."""

import csv
import io
import math
import subprocess

import pytest

from tests.conftest import ROOT

BEFORE = "df87ccfc"
"""The last commit with all that went."""


def git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def tables() -> list[str]:
    """The tables of results at that commit; none where the history isn't here, as in an archive."""
    try:
        names = git("ls-tree", "-r", "--name-only", BEFORE, "results/").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in names if name.endswith(("/data.csv", "claims.csv"))]


def alike(now: str, before: str) -> bool:
    if now == before:
        return True
    try:
        return math.isclose(float(now), float(before), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return False


@pytest.mark.parametrize("name", tables())
def test_numbers_stay(name):
    now = list(csv.reader((ROOT / name).open(newline="")))
    before = list(csv.reader(io.StringIO(git("show", f"{BEFORE}:{name}"))))
    assert len(now) == len(before)
    for mine, theirs in zip(now, before, strict=True):
        assert len(mine) == len(theirs)
        assert all(map(alike, mine, theirs)), (theirs, mine)
