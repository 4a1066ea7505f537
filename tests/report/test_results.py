"""From measures to verdicts.json: signs, units, what couldn't be measured; and the figure that every recipe has."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Claim
from stemrepro.measures.base import ON_SCALE
from stemrepro.report import forest
from stemrepro.report.evidence import OWN_SETTINGS, evidence_for, judged, verdict_rows
from stemrepro.report.results import mean_row, save
from stemrepro.report.style import use_style
from stemrepro.verdicts.effect import Effect, of_share
from stemrepro.verdicts.rule import NOT_ATTEMPTED, TOO_EASY, TOO_SHORT, TOO_SMALL
from tests.report.made_up import VALUES, given

NUMBER = PaperNumber(value=7.0, unit="units", source="Table 0", confidence="read")


def claim(*arms, kind="greater", metric="plain", m=0.1, **more):
    more = {"origin": "control", "paper": NUMBER if kind == "exact" else None} | more
    return Claim(sentence="So it is.", kind=kind, metric=metric, arms=arms, smallest_effect=m, **more)


def rows_of(scores):
    return verdict_rows("laptop", judged(scores))


@pytest.fixture
def made(catalog, monkeypatch):
    """made(claims) -> scores of a recipe with these claims."""
    return partial(given, catalog, monkeypatch)


@pytest.fixture
def scores(made):
    return made(
        {
            "larger": claim("high", "low", metric="both_rates"),
            "turned": claim("low", "high"),
            "number": claim(kind="exact", metric="number", m=0.5),
            "gone": claim("high", "lost"),
            "refused": claim("high", "low", requires=("fails",)),
        }
    )


def test_rows_have_the_sign_of_the_claim_and_what_they_rest_on(scores):
    rows = {row["claim"]: row for row in rows_of(scores)}
    assert rows["larger"]["ours"] == pytest.approx(3.85)  # at own settings
    assert rows["turned"]["ours"] == pytest.approx(-1.925)
    low, high = stats.t.interval(0.99, 3, -1.925, stats.sem(VALUES["high"] - VALUES["low"]))
    assert [rows["turned"][end] for end in ("ci99_low", "ci99_high")] == pytest.approx([low, high], abs=1e-6)
    assert low < rows["turned"]["ci_low"] < -1.925 < rows["turned"]["ci_high"] < high
    assert (rows["turned"]["item_se"], rows["larger"]["item_se"]) == (0.01, None)
    assert [rows[name]["seeds"] for name in rows] == [4, 4, 0, 0, 4]
    verdicts = ["supported", "contradicted", "supported", "undecided", "not tested"]
    assert [row["verdict"] for row in rows.values()] == verdicts
    assert rows["gone"]["reason"] == "lost diverged at step 3"
    assert rows["refused"]["reason"] == "fails"
    assert (rows["gone"]["ours"], rows["gone"]["ci_low"]) == (None, None)
    assert (rows["turned"]["method"], rows["larger"]["method"]) == ("t over seeds", f"t over seeds, {OWN_SETTINGS}")


def test_a_claims_row_is_the_same_whatever_other_claims_there_are(scores, made):
    rows = {row["claim"]: row for row in rows_of(scores)}
    for name, one in scores.recipe.claims.items():
        assert rows_of(made({name: one})) == [rows[name]]


@pytest.mark.parametrize(
    ("metric", "requires", "reason"),
    [
        ("plain", (), (None, "")),
        ("plain", ("passes",), (None, "")),
        ("plain", ("passes", "fails", "fails_too"), ("fails", TOO_SHORT)),
        ("plain", ("fails_too", "fails"), ("fails too", TOO_SMALL)),
        ("never", ("fails",), ("no <item> was asked", NOT_ATTEMPTED)),
        ("plain", ("counts",), ("counts at 0.1", TOO_SMALL)),
        ({"share": 50.0}, ("fails",), ("fails", TOO_SHORT)),
        ({"share": 99.0}, ("fails",), ("dense scores 98.9 to 99.3% (95%), above 95: no room is left", TOO_EASY)),
        (
            {"share": 1.0},
            ("fails",),
            ("dense scores 1.0 to 1.4% (95%), less than 2 points above the 0.0 of what needs no knowledge", TOO_SMALL),
        ),
    ],
)
def test_the_first_condition_that_fails_gives_the_reason(scores, metric, requires, reason):
    facts = evidence_for(claim("high", "low", metric=metric, requires=requires), scores)
    assert (facts.failed_precondition, facts.untested) == reason


def test_what_has_to_hold_is_told(scores):
    facts = evidence_for(claim("high", "low", metric={"share": 50.0}, requires=("passes",)), scores)
    assert facts.asked == f"{ON_SCALE}; A thing holds"


def test_only_results_of_the_paper_have_a_size(made):
    size = PaperNumber(value=2.0, unit="units", source="Table 0", confidence="read")
    paper = {"origin": "paper", "paper": size}
    scores = made(
        {
            "comparable": claim("high", "low", comparable=True, **paper),
            "other": claim("high", "low", comparable=True, origin="paper", paper=replace(size, value=20.0)),
            "elsewhere": claim("high", "low", **paper),
            "ours": claim("high", "low", comparable=True, paper=size),
            "refused": claim("high", "low", metric="never", **paper),
        }
    )
    rows = rows_of(scores)
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


def test_the_forest_shows_every_claim_in_units_of_what_counts(scores, catalog):
    use_style(catalog.arms)
    data = forest.collect(scores).set_index("what")
    assert list(data.index) == list(scores.recipe.claims)
    assert data.loc["larger", "value"] == pytest.approx(38.5)  # as it is judged
    assert data.loc["turned", "value"] == pytest.approx(-19.25)
    assert data.loc["number", "value"] == pytest.approx(0.5)  # a quarter off, of a half
    assert np.isnan(data.loc["gone", "value"])
    figure = forest.draw(data.reset_index(), scores)
    assert len(figure.axes[0].get_yticklabels()) == 5


def saved(folder, scores, rows, formats=()):
    """Save a forest of `scores` with the rows, and return the files by name."""
    data = forest.collect(scores)
    figures, inputs = {"figure": forest.draw(data, scores)}, {"params_hash": "p", "data_hash": None}
    save(folder, "laptop", figures, data, rows, inputs, formats)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_equal_results_are_equal_bytes_and_keep_their_provenance(scores, catalog, tmp_path, monkeypatch):
    use_style(catalog.arms)
    rows = rows_of(scores)
    files = saved(tmp_path, scores, rows)
    assert set(files) == {"figure.svg", "data.csv", "verdicts.json", "provenance.json"}
    assert json.loads(files["verdicts.json"]) == rows
    assert b"scale laptop, no runs<" in files["figure.svg"]
    monkeypatch.setattr("stemrepro.report.results.provenance", lambda: {"commit": "another"})
    assert saved(tmp_path, scores, rows) == files
    changed = saved(tmp_path, scores, rows[:-1])
    assert json.loads(changed["provenance.json"])["commit"] == "another"
    assert {name for name, content in changed.items() if content != files[name]} == {"verdicts.json", "provenance.json"}


def test_a_footer_counts_the_seeds_that_are_drawn_and_nothing_else(scores, catalog, tmp_path):
    use_style(catalog.arms)
    inputs = {"runs": {"a": {"seeds": 3}, "b": {"seeds": 5}}}
    for counts, words in (((5, 96), "5 seeds"), ((3, 5), "3 to 5 seeds"), ((4,), "4 seeds")):
        figures = {"figure": forest.draw(forest.collect(scores), scores)}
        save(tmp_path, "laptop", figures, pd.DataFrame({"count": counts}), [], inputs)
        assert f"scale laptop, {words}<" in (tmp_path / "figure.svg").read_text()


def test_other_forms_of_a_figure_are_drawn_on_demand(scores, catalog, tmp_path):
    use_style(catalog.arms)
    files = saved(tmp_path, scores, [], ("pdf", "png"))
    assert files["figure.pdf"].startswith(b"%PDF")
    assert files["figure.png"].startswith(b"\x89PNG")
    assert set(files) == {"figure.pdf", "figure.png", "figure.svg", "data.csv", "verdicts.json", "provenance.json"}
