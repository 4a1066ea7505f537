"""The figure and verdicts of the longer leaderboard, on made-up losses whose differences are given."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.report.analyse import analyse
from stemrepro.verdicts.rule import CONTRADICTED, SUPPORTED
from tests.conftest import ROOT
from tests.made_up import write_arms

ABOVE_STEM = {"dense": 0.3, "engram": -0.05, "over-encoding": 0.1, "stem-full": 0.0}
STEPS = 4_748


@pytest.mark.slow
def test_stem_is_ahead_of_a_rival_by_the_difference_of_their_losses(catalog, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    stem = 3.5 + 0.01 * np.random.default_rng(0).standard_normal(5)
    losses = {arm: stem + above + 0.001 * np.arange(-2, 3) * (above != 0) for arm, above in ABOVE_STEM.items()}
    arms = {
        str(address): {"prose": dict(enumerate(losses[address.arm])), "steps": STEPS}
        for address in catalog.recipe("leaderboard_longer").wanted()
    }
    write_arms(tmp_path / "scores/leaderboard-longer", arms)
    verdicts = analyse("leaderboard_longer", "leaderboard-longer", tmp_path / "scores", tmp_path / "results")
    assert {row["claim"]: row["verdict"] for row in verdicts} == {
        "over-engram-36": CONTRADICTED,
        "over-over-encoding-36": SUPPORTED,
    }
    rows = pd.read_csv(tmp_path / "results/leaderboard-longer/leaderboard_longer/data.csv")
    below = rows[rows["panel"] == "below"].set_index("what")
    assert pd.to_numeric(below["x"]).round().unique() == [36]
    for arm in ("engram", "over-encoding"):
        assert below.loc[arm, "value"] == pytest.approx((losses[arm] - stem).mean())
    leads = rows[rows["panel"] == "lead"].set_index("what")["value"]
    assert leads["stem-full"] == pytest.approx((100 * (1 - stem / losses["dense"])).mean())


def test_what_pages_say_of_its_study_and_sizes_is_so():
    """docs/leaderboard.md and docs/trainer.md."""
    page = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    rows = pd.read_csv(ROOT / "results/leaderboard.csv").query("track == 'FLOPs'").set_index("arm")
    tables = rows["parameters"] - rows["active_parameters"]
    assert f"STEM full's tables are {tables['stem-full'] / tables['engram']:.1f} times as large as Engram's" in page
    best = pd.read_csv(ROOT / "results/leaderboard-longer/sweeps/leaderboard_36/best.csv")
    assert best["at_edge"].fillna("").str.contains("table_rate_factor lowest").sum() == 3
    assert "The three with tables were best at the lowest table rate" in page
