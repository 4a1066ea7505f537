"""Estimates as lines of data.csv and as an appendix, with a measure whose values are given."""

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.common.errors import UserError
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Estimate
from stemrepro.report.estimates import appendix, with_estimates
from stemrepro.verdicts.contrast import Contrast, Unmeasured

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
        return Contrast(VALUES[high] - VALUES[low])

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


def test_the_appendix_has_them_in_the_order_of_the_file(given, tmp_path):
    recipe, file = given.inputs.recipe, tmp_path / "data.csv"
    with_estimates(DRAWN, given).to_csv(file, index=False)
    page = str(appendix(recipe, file))
    tables = ElementTree.fromstring(page).findall("table")
    measured, computed = ([[cell.text or "" for cell in row] for row in table[1:]] for table in tables)
    label = "<some> number"
    assert measured == [
        [label, "high - low", "units", "1.667", "-0.9189 to 4.252", "2 2.5 0.5"],
        [label, "low - high", "units", "-1.667", "-4.252 to 0.9189", "-2 -2.5 -0.5"],
        [label, "high - lost", "units", "- lost diverged at step 3", "", ""],
        [label, "gap - low", "units", "- in 1 of 3 seeds it has no value", "", ""],
        [label, "gap - low", "units", "- no <item> was asked", "", ""],
    ]
    assert computed == [
        [label, "units", "7.2", "7.25", "+0.05"],
        [label, "units", "7.2", "7.25", "0"],
        [label, "units", "-", "7.25", ""],
    ]
    assert [f'id="{name}"' in page for name in recipe.estimates] == [True] * 8
    assert appendix(recipe.model_copy(update={"estimates": {}}), tmp_path / "nothing") == ""
    DRAWN.to_csv(file)
    with pytest.raises(UserError, match=r"data\.csv is missing or damaged"):
        appendix(recipe, file)
