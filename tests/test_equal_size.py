"""The figure and verdict of equal size, on made-up losses whose difference is given."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.report.analyse import analyse
from stemrepro.verdicts.rule import SUPPORTED
from tests.conftest import ROOT
from tests.made_up import write_arms

BELOW = {"main": 0.1, "rung-3-fast": 0.06}
STEPS = {"main": 37_725, "rung-3-fast": 4_748}


@pytest.mark.slow
def test_dense_of_equal_size_is_as_far_below_as_its_losses_are(catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    stem = 3.5 + 0.01 * np.random.default_rng(0).standard_normal(5)
    dense = {variant: stem - below + 0.001 * np.arange(-2, 3) for variant, below in BELOW.items()}
    arms = {
        str(address): {
            "prose": dict(enumerate(stem if address.arm == "stem-full" else dense[address.variant])),
            "parameters": 571_000,
            "steps": STEPS[address.variant],
        }
        for address in catalog.recipe("equal_size").wanted()
    }
    write_arms(tmp_path / "scores/equal", arms)
    verdicts = analyse("equal_size", "equal", tmp_path / "scores", tmp_path / "results")
    assert [row["verdict"] for row in verdicts] == [SUPPORTED] * 2
    assert {row["claim"]: row["ours"] for row in verdicts} == pytest.approx(
        {"equal-size": BELOW["main"], "equal-size-36": BELOW["rung-3-fast"]}
    )
    rows = pd.read_csv(tmp_path / "results/equal/equal_size/data.csv")
    rows["budget"] = pd.to_numeric(rows["x"], errors="coerce").round()
    assert set(rows["budget"].dropna()) == {36, 286}
    for budget, variant in ((36, "rung-3-fast"), (286, "main")):
        data = rows[rows["budget"] == budget].set_index(["panel", "what"])["value"]
        below = stem - dense[variant]
        assert data["below", "dense-equal-size"].item() == pytest.approx(below.mean())
        assert data["loss", "stem-full"].item() == pytest.approx(stem.mean())
        assert sorted(data["seeds", "dense-equal-size"]) == pytest.approx(sorted(below))
