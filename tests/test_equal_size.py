"""The figure and verdict of equal size, on made-up losses whose difference is given."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.report.analyse import analyse
from stemrepro.verdicts.rule import SUPPORTED
from tests.conftest import ROOT
from tests.made_up import write_arms

BELOW = 0.1
STEPS = {"main": 37_725, "rung-3-fast": 4_748}


@pytest.mark.slow
def test_dense_of_equal_size_is_as_far_below_as_its_losses_are(catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    stem = 3.5 + 0.01 * np.random.default_rng(0).standard_normal(5)
    losses = {"stem-full": stem, "dense-equal-size": stem - BELOW + 0.001 * np.arange(-2, 3)}
    arms = {
        str(address): {
            "prose": dict(enumerate(losses[address.arm])),
            "parameters": 571_000,
            "steps": STEPS[address.variant],
        }
        for address in catalog.recipe("equal_size").wanted()
    }
    write_arms(tmp_path / "scores/equal", arms)
    verdicts = analyse("equal_size", "equal", tmp_path / "scores", tmp_path / "results")
    assert [(row["verdict"], row["ours"]) for row in verdicts] == [(SUPPORTED, pytest.approx(BELOW))] * 2
    rows = pd.read_csv(tmp_path / "results/equal/equal_size/data.csv")
    rows["budget"] = pd.to_numeric(rows["x"], errors="coerce").round()
    assert set(rows["budget"].dropna()) == {36, 286}
    for budget in (36, 286):
        data = rows[rows["budget"] == budget].set_index(["panel", "what"])["value"]
        below = stem - losses["dense-equal-size"]
        assert data["below", "dense-equal-size"].item() == pytest.approx(below.mean())
        assert data["loss", "stem-full"].item() == pytest.approx(stem.mean())
        assert sorted(data["seeds", "dense-equal-size"]) == pytest.approx(sorted(below))
