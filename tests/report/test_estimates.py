"""Estimates as lines of data.csv, with a measure whose values are given."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Estimate
from stemrepro.report.estimates import with_estimates
from stemrepro.verdicts.effect import Effect, Unmeasured

NUMBER = PaperNumber(value=7.2, unit="units", source="Table 0", confidence="read")
VALUES = {"high": np.array([3.0, 3.5, 2.5]), "low": np.array([1.0, 1.0, 2.0]), "gap": np.array([1.0, np.nan, 1.0])}


class Given:
    """The arm `lost` was never measured, the metric `never` is never asked."""

    def __init__(self, catalog, estimates):
        recipe = catalog.recipes["rivals"].model_copy(update={"claims": {}, "estimates": estimates})
        self.inputs = type("Inputs", (), {"recipe": recipe})()

    def contrast(self, high, low, metric):
        if "lost" in (high, low):
            raise Unmeasured("lost diverged at step 3")
        return Effect(VALUES[high] - VALUES[low])

    def value(self, metric):
        return 7.25

    def untestable(self, metric, precondition):
        return "no <item> was asked" if metric == "never" else None


def estimate(*arms, metric="plain", **more):
    return Estimate(label="<some> number", metric=metric, arms=arms, unit="units", **more)


DRAWN = pd.DataFrame({"panel": ["loss"], "what": ["dense"], "tokens": [123_456_789], "value": [0.5]})


@pytest.fixture
def given(catalog):
    return Given(catalog, {
        "plain": estimate("high", "low"),
        "turned": estimate("low", "high"),
        "off": estimate(paper=NUMBER, tolerance=0.04),
        "equal": estimate(paper=NUMBER, tolerance=0.05),
        "bare": estimate(),
        "lost": estimate("high", "lost"),
        "gaps": estimate("gap", "low"),
        "never": estimate("gap", "low", metric="never"),
    })  # fmt: skip


def test_lines_are_means_with_plain_intervals_and_seeds(given):
    rows = with_estimates(DRAWN, given).set_index("what").loc[list(given.inputs.recipe.estimates)]
    low, high = stats.t.interval(0.95, 2, loc=5 / 3, scale=stats.sem([2.0, 2.5, 0.5]))
    assert rows.loc["plain", ["value", "ci_low", "ci_high"]].tolist() == pytest.approx([5 / 3, low, high])
    assert rows.loc["turned", ["value", "ci_low", "ci_high"]].tolist() == pytest.approx([-5 / 3, -high, -low])
    assert (rows.loc["plain", "by_seed"], rows.loc["plain", "count"]) == ("2 2.5 0.5", 3)
    assert set(rows["panel"]) == {"estimates"}
    assert rows.loc["off", "value"] == 7.25
    assert np.isnan(rows.loc["off", "ci_low"])
    reasons = rows["reason"].dropna()
    assert reasons.to_dict() == {
        "lost": "lost diverged at step 3",
        "gaps": "in 1 of 3 seeds it has no value",
        "never": "no <item> was asked",
    }
    assert rows.loc[reasons.index, "value"].isna().all()


def test_what_a_figure_draws_stays_as_it_is(given, catalog):
    before, after = DRAWN.to_csv(index=False), with_estimates(DRAWN, given)
    assert after[: len(DRAWN)][list(DRAWN)].to_csv(index=False) == before  # 123456789, no float
    assert with_estimates(DRAWN, Given(catalog, {})) is DRAWN
