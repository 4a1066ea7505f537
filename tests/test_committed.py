"""The committed verdicts are what today's code gives of the committed scores: an edit of a measure, a claim or the rule shows here
unless its results are made anew ('make figures')."""

import json
import math

import pytest

from stemrepro.measures.base import measured
from stemrepro.measures.catalog import load
from stemrepro.measures.inputs import Inputs
from stemrepro.report.results import judged
from tests.conftest import ROOT

RECIPES = [
    (scale, path.parent.name)
    for scale in ("laptop", "ladder")
    for path in ROOT.glob(f"results/{scale}/*/verdicts.json")
]


def equal(new: object, old: object) -> bool:
    """Numbers to a few of their last digits, which processors differ in; all else exactly."""
    if isinstance(new, float) and isinstance(old, float | int):
        return math.isclose(new, old, rel_tol=1e-4, abs_tol=2e-6)
    return new == old


@pytest.mark.parametrize(("scale", "name"), sorted(RECIPES), ids=lambda value: value)
def test_verdicts_follow_from_scores(scale, name):
    inputs = Inputs(name, load(ROOT / "recipes"), scale, ROOT / "scores" / scale)
    rows = judged(inputs, measured(inputs))
    before = json.loads((ROOT / f"results/{scale}/{name}/verdicts.json").read_text())
    assert [row["claim"] for row in rows] == [row["claim"] for row in before]
    changed = {
        (row["claim"], field): (old[field], row[field])
        for row, old in zip(rows, before, strict=True)
        for field in old
        if field != "reason" and not equal(row[field], old[field])
    }
    assert changed == {}
