"""Estimates as lines of data.csv, with a measure whose values are given."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.config.recipe import Estimate
from stemrepro.report.estimates import with_estimates
from tests.report.made_up import given

DRAWN = pd.DataFrame({"panel": ["loss"], "what": ["dense"], "tokens": [123_456_789], "value": [0.5]})


def estimate(*arms, metric="plain"):
    return Estimate(label="<some> number", metric=metric, arms=arms, unit="units")


@pytest.fixture
def scores(catalog, monkeypatch):
    estimates = {
        "plain": estimate("high", "low"),
        "turned": estimate("low", "high"),
        "bare": estimate(metric="number"),
        "lost": estimate("high", "lost"),
        "gaps": estimate("gap", "low"),
        "never": estimate("gap", "low", metric="never"),
    }
    return given(catalog, monkeypatch, estimates=estimates)


def test_lines_are_means_with_plain_intervals_and_seeds(scores):
    rows = with_estimates(DRAWN, scores).set_index("what").loc[list(scores.recipe.estimates)]
    low, high = stats.t.interval(0.95, 3, loc=1.925, scale=stats.sem([2.0, 1.9, 1.8, 2.0]))
    assert rows.loc["plain", ["value", "ci_low", "ci_high"]].tolist() == pytest.approx([1.925, low, high])
    assert rows.loc["turned", ["value", "ci_low", "ci_high"]].tolist() == pytest.approx([-1.925, -high, -low])
    assert (rows.loc["plain", "by_seed"], rows.loc["plain", "count"]) == ("2 1.9 1.8 2", 4)
    assert set(rows["panel"]) == {"estimates"}
    assert rows.loc["bare", "value"] == 7.25
    assert np.isnan(rows.loc["bare", "ci_low"])
    reasons = rows["reason"].dropna()
    assert reasons.to_dict() == {
        "lost": "lost diverged at step 3",
        "gaps": "in 1 of 4 seeds it has no value",
        "never": "no <item> was asked",
    }
    assert rows.loc[reasons.index, "value"].isna().all()


def test_what_a_figure_draws_stays_as_it_is(scores, catalog, monkeypatch):
    before, after = DRAWN.to_csv(index=False), with_estimates(DRAWN, scores)
    assert after[: len(DRAWN)][list(DRAWN)].to_csv(index=False) == before  # 123456789, no float
    assert with_estimates(DRAWN, given(catalog, monkeypatch)) is DRAWN
