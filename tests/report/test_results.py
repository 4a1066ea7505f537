"""From measures to verdicts.json: signs, units, what couldn't be measured; and the figure that every recipe has."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats
from stemrepro.report.judging import judged
from stemrepro.verdicts.moderation import fitted
from stemrepro.verdicts.robustness import OFFICIAL_INIT, OWN_RATES

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Claim
from stemrepro.measures.base import Level, Precondition
from stemrepro.report import forest
from stemrepro.report.evidence import evidence_for, evidence_rows, read_evidence
from stemrepro.report.results import mean_row, save, verdict_rows
from stemrepro.report.style import use_style
from stemrepro.report.verdicts import AT_OFFICIAL_INIT
from stemrepro.verdicts.contrast import Contrast, Unmeasured, of_shares
from stemrepro.verdicts.rule import NOT_ATTEMPTED, TOO_EASY, TOO_SHORT, TOO_SMALL

VALUES = {
    "high": np.array([3.0, 3.1, 2.9, 3.0]),
    "middle": np.array([2.0, 2.1, 2.05, 2.0]),
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
        return Contrast(VALUES[high] - VALUES[low], item_se=0.01, item_df=9)

    def robustness(self, high, low, metric):
        both = {OWN_RATES: 2, OFFICIAL_INIT: 3}
        factors = both if metric == "everywhere" else {OWN_RATES: 2} if metric == "both rates" else {}
        return {setting: Contrast(factor * (VALUES[high] - VALUES[low])) for setting, factor in factors.items()}

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
    return Claim(
        sentence="So it is.",
        kind=kind,
        metric=metric,
        arms=arms,
        smallest_effect=m,
        **more,
    )


def findings_of(given, scale="laptop"):
    """What a page reads of a recipe, by way of the file."""
    with TemporaryDirectory() as folder:
        write_json(Path(folder) / "evidence.json", evidence_rows(scale, given))
        return read_evidence(Path(folder) / "evidence.json")


def rows_of(given):
    return verdict_rows(judged(findings_of(given)))


@pytest.fixture
def given(catalog):
    return Given(catalog, {
        "larger": claim("high", "low", metric="both rates"),
        "turned": claim("low", "high"),
        "order": claim("high", "middle", "low", kind="ordering"),
        "number": claim(kind="exact", m=0.5),
        "gone": claim("high", "lost"),
        "refused": claim("high", "low", metric="never"),
    })  # fmt: skip


def test_rows_have_the_sign_of_the_claim_and_what_they_rest_on(given):
    rows = {row["claim"]: row for row in rows_of(given)}
    assert rows["larger"]["ours"] == pytest.approx(1.925)
    assert rows["turned"]["ours"] == pytest.approx(-1.925)
    assert (rows["larger"]["tuned"], rows["turned"]["tuned"]) == (pytest.approx(3.85), None)
    assert rows["order"]["ours"] == pytest.approx(0.9625)  # the weakest pair
    assert rows["larger"]["ci_low"] < 1.925 < rows["larger"]["ci_high"]
    assert rows["larger"]["item_se"] == 0.01
    assert [rows[name]["seeds"] for name in rows] == [4, 4, 4, 0, 0, 4]
    assert [row["verdict"] for row in rows.values()] == [
        "supported", "contradicted", "supported", "supported", "undecided", "not tested"
    ]  # fmt: skip
    assert rows["gone"]["reason"] == "lost diverged at step 3"
    assert rows["refused"]["reason"] == "nothing was asked"
    assert (rows["gone"]["ours"], rows["gone"]["ci_low"]) == (None, None)
    assert (rows["number"]["p"], rows["gone"]["p"]) == (None, None)
    assert rows["larger"]["adjusted_p"] >= rows["larger"]["p"]
    assert rows["larger"]["method"] == "t over seeds"


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


def test_a_row_has_the_official_init_where_it_was_run(catalog):
    order = claim("high", "middle", "low", metric="everywhere", kind="ordering")
    given = Given(
        catalog, {"both": claim("high", "low", metric="everywhere"), "one": claim("high", "low"), "order": order}
    )
    rows = {row["claim"]: row for row in rows_of(given)}
    assert (rows["both"]["official_init"], rows["both"]["official_init_same_sign"]) == (pytest.approx(3 * 1.925), True)
    assert rows["both"]["tuned"] == pytest.approx(2 * 1.925)
    assert rows["order"]["official_init"] == pytest.approx(3 * 0.9625)  # the weakest pair
    assert not rows["one"].keys() & AT_OFFICIAL_INIT
    noise = Contrast(np.array([-9.0, 9.0, -8.0, 9.5]))
    given.robustness = lambda *_: {OFFICIAL_INIT: noise}
    row = rows_of(given)[0]
    assert (row["official_init"], row["official_init_same_sign"]) == (pytest.approx(noise.mean), False)
    assert row["verdict"] == "supported"  # noise turns nothing


def test_an_ordering_needs_all_of_its_pairs_in_a_setting(given):
    ones = Contrast(np.ones(4))
    given.robustness = lambda high, low, metric: {OFFICIAL_INIT: ones} if high == "high" else {}
    facts = evidence_for(claim("high", "middle", "low", kind="ordering"), given)
    assert facts.robustness == {}


def test_the_rule_gets_what_the_claim_says(given):
    """Of a result of the paper's, unlike of a control, the size counts."""
    size = PaperNumber(value=2.0, unit="units", source="Table 0", confidence="read")
    sized = claim("high", "low", origin="paper", primary=True, paper=size)
    facts = evidence_for(sized, given)
    assert (facts.primary, facts.paper_effect) == (True, 2.0)
    assert (facts.smallest_effect, facts.kind) == (0.1, "greater")
    plain = evidence_for(claim("high", "low", origin="paper"), given)
    assert (plain.primary, plain.paper_effect) == (False, None)


def test_only_results_of_the_paper_have_a_size(catalog):
    size = PaperNumber(value=2.0, unit="units", source="Table 0", confidence="read")
    paper = {"origin": "paper", "paper": size}
    given = Given(catalog, {
        "comparable": claim("high", "low", comparable=True, **paper),
        "other": claim("high", "low", comparable=True, **paper | {"paper": size.model_copy(update={"value": 20.0})}),
        "elsewhere": claim("high", "low", **paper),
        "ours": claim("high", "low", comparable=True, paper=size),
        "refused": claim("high", "low", metric="never", **paper),
    })  # fmt: skip
    rows = rows_of(given)
    assert [row["size"] for row in rows] == ["the paper's size", "another size", "can't be compared", None, None]
    assert {row["verdict"] for row in rows[:4]} == {"supported"}  # no word depends on it


def test_a_page_judges_what_its_evidence_says_whatever_the_recipe(catalog):
    """p are adjusted and variances moderated over all claims, of one scale and unit."""
    noise = np.random.default_rng(0).normal(0.01, 0.02, (12, 3))
    given = Given(catalog, {f"claim-{n}": claim("high", "low", metric=str(n), m=0.02) for n in range(12)})
    given.contrast = lambda high, low, metric: Contrast(noise[int(metric)])
    together = judged(findings_of(given))
    ps = [c.result.p for c in together] + [c.result.other_p for c in together]
    assert [c.result.adjusted_p for c in together] == pytest.approx(stats.false_discovery_control(ps)[:12])
    prior = fitted([Contrast(row) for row in noise])
    assert [c.result.p for c in together] == pytest.approx([prior.moderated(Contrast(row)).p(0.0) for row in noise])
    assert all("variance moderated" in row["method"] for row in verdict_rows(together))
    apart = judged([*findings_of(given)[:6], *findings_of(given, "overnight")[6:]])
    assert [c.result.p for c in apart] == pytest.approx([stats.ttest_1samp(row, 0).pvalue for row in noise])


def test_evidence_keeps_all_that_a_contrast_has(catalog):
    shares = of_shares(np.array([90.0, 95, 99]), np.array([50.0, 60, 70]), 100, item_se=2.0, item_df=7, paired=False)
    given = Given(catalog, {"share": claim("high", "low")})
    given.contrast = lambda *_: shares
    kept = findings_of(given)[0].facts().contrasts[0]
    assert kept.interval(0.05) == pytest.approx(shares.interval(0.05), rel=1e-6)
    assert (kept.error, kept.paired) == (pytest.approx(shares.error, rel=1e-6), False)


@pytest.mark.parametrize(("change", "words"), [
    ({"kind": None}, "claim 'larger'.kind"), ({"contrasts": [{"differences": []}]}, "contrasts.0.differences"),
    ({"more": 1}, "unknown key"), ({"p": 0.1}, "unknown key"),
])  # fmt: skip
def test_damaged_evidence_is_named(given, tmp_path, change, words):
    path, rows = tmp_path / "evidence.json", evidence_rows("laptop", given)
    write_json(path, [rows[0] | change])
    with pytest.raises(UserError, match=words) as error:
        read_evidence(path)
    assert str(path) in str(error.value)
    write_json(path, [rows[0], rows[0]])
    with pytest.raises(UserError, match="a claim twice"):
        read_evidence(path)


def test_seeds_without_a_value_are_not_judged(given):
    given.contrast = lambda *_: Contrast(np.array([1.0, np.nan, 1.0, 1.0]))
    assert evidence_for(claim("high", "low"), given).unmeasured == "in 1 of 4 seeds the contrast has no value"


def test_a_line_of_data_is_a_mean_with_its_95_percent_interval():
    row = mean_row("panel", "what", 3, Contrast(np.array([1.0, 2.0, 3.0])))
    half = 4.302653 * 1 / np.sqrt(3)  # Student's quantile at two degrees of freedom
    assert (row["value"], row["count"], row["x"]) == (2.0, 3, 3)
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(2 - half), pytest.approx(2 + half))


def test_the_forest_shows_every_claim_in_units_of_what_counts(given, catalog):
    use_style(catalog.arms)
    data = forest.collect(given).set_index("what")
    assert list(data.index) == list(given.inputs.recipe.claims)
    assert data.loc["larger", "value"] == pytest.approx(19.25)
    assert data.loc["turned", "value"] == pytest.approx(-19.25)
    assert data.loc["number", "value"] == pytest.approx(0.5)  # a quarter off, of a half
    assert np.isnan(data.loc["gone", "value"])
    figure = forest.draw(data.reset_index(), given)
    assert len(figure.axes[0].get_yticklabels()) == 6


def test_gains_in_other_settings_are_rows_and_marks_of_their_own(given, catalog, monkeypatch):
    use_style(catalog.arms)
    monkeypatch.setitem(VALUES, "dense", VALUES["high"])
    monkeypatch.setitem(VALUES, "stem-full", VALUES["low"])
    given.robustness = lambda high, low, _: Given.robustness(given, high, low, "everywhere")
    rows = forest.robustness_rows(given, "stem-full")
    assert [(row["panel"], row["x"]) for row in rows] == [
        ("loss, own rate", "own rate"), ("loss, official start", "official start")
    ]  # fmt: skip
    assert [row["value"] for row in rows] == pytest.approx([2 * 1.925, 3 * 1.925])
    for count in (1, 2):  # without and with the official initialisation
        axes, data = Figure().subplots(), pd.DataFrame(rows[:count])
        forest.draw_robustness(axes, data, ["stem-full"], shift=0.2)
        forest.mark_settings(axes, data)
        drawn = [line for line in axes.lines if line.get_marker() == "D"]
        assert [line.get_fillstyle() for line in drawn] == ["full", "left"][:count]
        assert [line.get_xdata()[0] for line in drawn] == pytest.approx([2 * 1.925, 3 * 1.925][:count])
        assert len(axes.get_legend_handles_labels()[1]) == 1 + count


def saved(folder, given, rows, formats=()):
    """Save a forest of `given` with the rows, and return the files by name."""
    data = forest.collect(given)
    figures, inputs = {"figure": forest.draw(data, given)}, {"params_hash": "p", "data_hash": None}
    save(folder, "laptop", figures, data, rows, inputs, formats)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_equal_results_are_equal_bytes_and_keep_their_provenance(given, catalog, tmp_path, monkeypatch):
    use_style(catalog.arms)
    rows = evidence_rows("laptop", given)
    files = saved(tmp_path, given, rows)
    assert set(files) == {"figure.svg", "data.csv", "evidence.json", "provenance.json"}
    assert json.loads(files["evidence.json"]) == rows
    assert b"no runs, hash of settings p<" in files["figure.svg"]
    monkeypatch.setattr("stemrepro.report.results.provenance", lambda: {"commit": "another"})
    assert saved(tmp_path, given, rows) == files
    changed = saved(tmp_path, given, rows[:-1])
    assert json.loads(changed["provenance.json"])["commit"] == "another"
    assert {name for name, content in changed.items() if content != files[name]} == {
        "evidence.json",
        "provenance.json",
    }


def test_other_forms_of_a_figure_are_drawn_on_demand(given, catalog, tmp_path):
    use_style(catalog.arms)
    files = saved(tmp_path, given, [], ("pdf", "png"))
    assert files["figure.pdf"].startswith(b"%PDF")
    assert files["figure.png"].startswith(b"\x89PNG")
    assert set(files) == {"figure.pdf", "figure.png", "figure.svg", "data.csv", "evidence.json", "provenance.json"}
