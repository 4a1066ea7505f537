"""From measures to verdicts.json: signs, units, what couldn't be measured; and the figure that every recipe has."""

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Claim
from stemrepro.measures.base import Level, Precondition
from stemrepro.report import forest
from stemrepro.report.evidence import OWN_SETTINGS, evidence_for, judged, verdict_rows
from stemrepro.report.results import mean_row, save
from stemrepro.report.style import use_style
from stemrepro.verdicts.effect import Effect, Unmeasured, of_share
from stemrepro.verdicts.rule import NOT_ATTEMPTED, TOO_EASY, TOO_SHORT, TOO_SMALL

VALUES = {
    "high": np.array([3.0, 3.1, 2.9, 3.0]),
    "low": np.array([1.0, 1.2, 1.1, 1.0]),
}
NUMBER = PaperNumber(value=7.0, unit="units", source="Table 0", confidence="read")


class Given:
    """A measure whose values are given; the arm `lost` was never measured, the metric `never` can't be tested."""

    reads_text = False
    preconditions: ClassVar = {
        "passes": Precondition("", TOO_SMALL, ()),
        "fails": Precondition("", TOO_SHORT, ()),
        "fails too": Precondition("", TOO_SMALL, ()),
        "counts": Precondition("", TOO_SMALL, (), by_effect=True),
    }

    def __init__(self, catalog, claims):
        recipe = catalog.recipes["rivals"].model_copy(update={"claims": claims})
        self.inputs = type("Inputs", (), {"recipe": recipe, "scale_name": "laptop", "catalog": catalog})()

    def contrast(self, high, low, metric):
        if "lost" in (high, low):
            raise Unmeasured("lost diverged at step 3")
        return Effect(VALUES[high] - VALUES[low], item_se=0.01)

    def own(self, high, low, metric):
        return Effect(2 * (VALUES[high] - VALUES[low])) if metric in ("both rates", "prose") else None

    def official(self, high, low):
        return Effect(3 * (VALUES[high] - VALUES[low]))

    def levels(self, metric):
        at = {"ceiling": 99.0, "floor": 1.0}.get(metric)
        return [] if at is None else [Level(np.full(4, at) + np.arange(4) / 10, 1000)]

    def value(self, metric):
        return 7.25

    def untestable(self, metric, precondition, smallest_effect=None):
        if metric == "never":
            return "nothing was asked"
        level = "" if smallest_effect is None else f" at {smallest_effect}"
        return None if precondition in ("none", "passes") else f"{precondition}{level}"

    def runs(self):
        return {}


def claim(*arms, kind="greater", metric="plain", m=0.1, **more):
    more = {"origin": "control", "paper": NUMBER if kind == "exact" else None} | more
    return Claim(sentence="So it is.", kind=kind, metric=metric, arms=arms, smallest_effect=m, **more)


def rows_of(given):
    return verdict_rows("laptop", judged(given))


@pytest.fixture
def given(catalog):
    return Given(catalog, {
        "larger": claim("high", "low", metric="both rates"),
        "turned": claim("low", "high"),
        "number": claim(kind="exact", m=0.5),
        "gone": claim("high", "lost"),
        "refused": claim("high", "low", metric="never"),
    })  # fmt: skip


def test_rows_have_the_sign_of_the_claim_and_what_they_rest_on(given):
    rows = {row["claim"]: row for row in rows_of(given)}
    assert rows["larger"]["ours"] == pytest.approx(3.85)  # at own settings
    assert rows["turned"]["ours"] == pytest.approx(-1.925)
    low, high = stats.t.interval(0.99, 3, -1.925, stats.sem(VALUES["high"] - VALUES["low"]))
    assert [rows["turned"][end] for end in ("ci99_low", "ci99_high")] == pytest.approx([low, high], abs=1e-6)
    assert low < rows["turned"]["ci_low"] < -1.925 < rows["turned"]["ci_high"] < high
    assert (rows["turned"]["item_se"], rows["larger"]["item_se"]) == (0.01, None)
    assert [rows[name]["seeds"] for name in rows] == [4, 4, 0, 0, 4]
    assert [row["verdict"] for row in rows.values()] == [
        "supported", "contradicted", "supported", "undecided", "not tested"
    ]  # fmt: skip
    assert rows["gone"]["reason"] == "lost diverged at step 3"
    assert rows["refused"]["reason"] == "nothing was asked"
    assert (rows["gone"]["ours"], rows["gone"]["ci_low"]) == (None, None)
    assert (rows["turned"]["method"], rows["larger"]["method"]) == ("t over seeds", f"t over seeds, {OWN_SETTINGS}")


def test_a_claims_row_is_the_same_whatever_other_claims_there_are(given, catalog):
    for name, one in given.inputs.recipe.claims.items():
        (alone,) = rows_of(Given(catalog, {name: one}))
        assert alone == next(row for row in rows_of(given) if row["claim"] == name)


@pytest.mark.parametrize(
    ("metric", "preconditions", "reason"),
    [
        ("plain", (), (None, "")),
        ("plain", ("passes",), (None, "")),
        ("plain", ("passes", "fails", "fails too"), ("fails", TOO_SHORT)),
        ("plain", ("fails too", "fails"), ("fails too", TOO_SMALL)),
        ("never", ("fails",), ("nothing was asked", NOT_ATTEMPTED)),
        ("plain", ("counts",), ("counts at 0.1", TOO_SMALL)),
        ("ceiling", ("fails",), ("dense scores 98.9 to 99.3% (95%), above 95: no room is left", TOO_EASY)),
        (
            "floor",
            ("fails",),
            ("dense scores 1.0 to 1.4% (95%), less than 2 points above the 0.0 of what needs no knowledge", TOO_SMALL),
        ),
    ],
)
def test_the_first_precondition_that_fails_gives_the_reason(given, metric, preconditions, reason):
    facts = evidence_for(claim("high", "low", metric=metric, preconditions=preconditions), given)
    assert (facts.failed_precondition, facts.untested) == reason


def test_only_results_of_the_paper_have_a_size(catalog):
    size = PaperNumber(value=2.0, unit="units", source="Table 0", confidence="read")
    paper = {"origin": "paper", "paper": size}
    given = Given(catalog, {
        "comparable": claim("high", "low", comparable=True, **paper),
        "other": claim("high", "low", comparable=True, **paper | {"paper": replace(size, value=20.0)}),
        "elsewhere": claim("high", "low", **paper),
        "ours": claim("high", "low", comparable=True, paper=size),
        "refused": claim("high", "low", metric="never", **paper),
    })  # fmt: skip
    rows = rows_of(given)
    assert [row["size"] for row in rows] == ["the paper's size", "another size", "can't be compared", None, None]
    assert {row["verdict"] for row in rows[:4]} == {"supported"}  # no word depends on it


def test_a_line_of_data_is_a_mean_with_its_95_percent_interval():
    row = mean_row("panel", "what", 3, Effect(np.array([1.0, 2.0, 3.0])))
    half = 4.302653 * 1 / np.sqrt(3)  # Student's quantile at two degrees of freedom
    assert (row["value"], row["count"], row["x"]) == (2.0, 3, 3)
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(2 - half), pytest.approx(2 + half))


def test_a_line_of_a_share_has_the_plain_mean_and_an_interval_on_logits_that_holds_it():
    share = of_share(np.array([90.0, 99.0, 99.0]), 100)
    row, low = mean_row("panel", "what", 3, share, 10), share.interval(0.05)[0]
    assert (row["value"], row["ci_low"]) == (pytest.approx(9.6), pytest.approx(low / 10))
    assert 5 < row["ci_low"] < 9.6 < row["ci_high"] < 10
    assert mean_row("panel", "what", 3, of_share(np.full(3, 100.0), 100))["ci_high"] == 100


def test_the_forest_shows_every_claim_in_units_of_what_counts(given, catalog):
    use_style(catalog.arms)
    data = forest.collect(given).set_index("what")
    assert list(data.index) == list(given.inputs.recipe.claims)
    assert data.loc["larger", "value"] == pytest.approx(38.5)  # as it is judged
    assert data.loc["turned", "value"] == pytest.approx(-19.25)
    assert data.loc["number", "value"] == pytest.approx(0.5)  # a quarter off, of a half
    assert np.isnan(data.loc["gone", "value"])
    figure = forest.draw(data.reset_index(), given)
    assert len(figure.axes[0].get_yticklabels()) == 5


def saved(folder, given, rows, formats=()):
    """Save a forest of `given` with the rows, and return the files by name."""
    data = forest.collect(given)
    figures, inputs = {"figure": forest.draw(data, given)}, {"params_hash": "p", "data_hash": None}
    save(folder, "laptop", figures, data, rows, inputs, formats)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_equal_results_are_equal_bytes_and_keep_their_provenance(given, catalog, tmp_path, monkeypatch):
    use_style(catalog.arms)
    rows = rows_of(given)
    files = saved(tmp_path, given, rows)
    assert set(files) == {"figure.svg", "data.csv", "verdicts.json", "provenance.json"}
    assert json.loads(files["verdicts.json"]) == rows
    assert b"no runs, hash of settings p<" in files["figure.svg"]
    monkeypatch.setattr("stemrepro.report.results.provenance", lambda: {"commit": "another"})
    assert saved(tmp_path, given, rows) == files
    changed = saved(tmp_path, given, rows[:-1])
    assert json.loads(changed["provenance.json"])["commit"] == "another"
    assert {name for name, content in changed.items() if content != files[name]} == {
        "verdicts.json",
        "provenance.json",
    }


def test_other_forms_of_a_figure_are_drawn_on_demand(given, catalog, tmp_path):
    use_style(catalog.arms)
    files = saved(tmp_path, given, [], ("pdf", "png"))
    assert files["figure.pdf"].startswith(b"%PDF")
    assert files["figure.png"].startswith(b"\x89PNG")
    assert set(files) == {"figure.pdf", "figure.png", "figure.svg", "data.csv", "verdicts.json", "provenance.json"}
