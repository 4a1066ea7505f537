"""Questions and their answers, from made-up verdicts."""

import re

import pandas as pd
import pytest

from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.questions import Question, read_questions
from stemrepro.report.drawing import bar, common_axis, in_multiples, squares
from stemrepro.report.estimates import printed_numbers
from stemrepro.report.questions import answered
from stemrepro.verdicts.answer import NO, PARTLY, YES
from tests.conftest import ROOT
from tests.report.made_up import row

LADDER = "token_ladder/full-below-dense-at-the-papers-ratio"
FLOPS, LATENCY, TABLE = (f"rivals/{name}" for name in ("equal-flops", "equal-latency", "over-bigram-table"))


def view(rows: dict[str, dict], catalog, results=ROOT / "results", **fields: object) -> dict:
    question = Question(asked="Is it?", label="what it is", panel="rivals/a", **fields)
    return answered(question, rows, catalog, results, results)


def made(**verdicts: str) -> dict[str, dict]:
    return {f"rivals/{name.replace('_', '-')}": row(name, verdict) for name, verdict in verdicts.items()}


def test_a_changed_verdict_changes_the_word(catalog):
    asked = {"supports": [FLOPS], "opposes": [LATENCY], "also": [TABLE], "number": FLOPS}
    rows = made(equal_flops="supported", equal_latency="contradicted", over_bigram_table="contradicted")
    assert view(rows, catalog, **asked)["word"] == YES
    assert view(rows | made(over_bigram_table="supported"), catalog, **asked)["word"] == YES  # it decides nothing
    assert view(rows | made(equal_latency="supported"), catalog, **asked)["word"] == PARTLY
    both = made(equal_latency="supported", equal_flops="contradicted")
    assert view(rows | both, catalog, **asked)["word"] == NO
    del rows[LATENCY]  # not on this page
    assert view(rows, catalog, **asked)["word"] == PARTLY


@pytest.mark.parametrize("key", list(read_yaml(ROOT / "recipes/questions.yaml")))
def test_each_of_our_words_hangs_on_its_verdicts(catalog, key):
    """With every verdict as its question would have it the word is yes; reversed it is no."""
    question = read_questions(catalog, ROOT / "recipes")[key]
    for good, bad, word in (("supported", "contradicted", YES), ("contradicted", "supported", NO)):
        rows = {name: row(name.partition("/")[2], good) for name in question.supports}
        rows |= {name: row(name.partition("/")[2], bad) for name in question.opposes}
        assert answered(question, rows, catalog, ROOT / "results", ROOT / "results")["word"] == word


def test_the_papers_claims_come_first_and_those_not_attempted_are_folded(catalog):
    rows = made(equal_flops="supported") | {LADDER: row("x", "supported", origin="paper")}
    rows[FLOPS]["origin"] = "control"
    rows[LATENCY] = row("equal-latency", "not tested", untested="not attempted")
    told = view(rows, catalog, supports=[FLOPS, LATENCY, "retrofit/gain-full", LADDER])
    assert [line["name"] for line in told["lines"]] == [LADDER, FLOPS]
    assert told["missing"] == {catalog.recipes["rivals"].title: 1, catalog.recipes["retrofit"].title: 1}
    assert told["split"] == "the paper's results: 1 yes; our own questions: 1 yes, 2 not tested"


def test_claims_share_an_axis_in_their_unit_or_in_what_counts(catalog):
    """Places on the axis are linear, so that a line with twice the effect of another lies twice as far from 0."""

    def places(rows):
        told = view(rows, catalog, supports=list(rows))
        found = [re.search(r'class=a d="M(\d+).*class=o d="M(\d+) ', str(line["picture"])) for line in told["lines"]]
        return told["unit"], [int(match[2]) - int(match[1]) for match in found]

    rows = made(equal_flops="supported", equal_latency="supported")
    rows[LATENCY] |= {"ours": 0.2, "ci_high": 0.25}
    unit, (one, two) = places(rows)
    assert unit == "nats/token"
    assert two == pytest.approx(2 * one, abs=2)
    rows[LATENCY] |= {"unit": "points", "ours": 30, "ci_low": 20, "ci_high": 40, "smallest_effect": 10, "paper": None}
    unit, (one, two) = places(rows)  # 0.1 of 0.02 is 5 times what counts, 30 of 10 is 3 times
    assert unit is None
    assert two == pytest.approx(3 / 5 * one, abs=2)


def test_a_bar_has_its_interval_its_band_and_the_papers_number():
    """On the axis from -1 to 1, 224 pixels long and 8 from the left."""
    made_up = row("a", "supported", ours=0.5, ci_low=0.25, ci_high=0.75, smallest_effect=0.125)
    picture = bar(made_up | {"paper": made_up["paper"] | {"value": -0.5}}, (-1, 1))
    at = {value: 8 + 112 * (1 + value) for value in (-0.5, -0.125, 0, 0.125, 0.25, 0.5, 0.75)}
    assert f'class=b d="M{at[0.25]:.0f} 9H{at[0.75]:.0f}"' in picture
    assert f'class=o d="M{at[0.5]:.0f} 9h0"' in picture
    assert f'class=n d="M{at[-0.125]:.0f} 0H{at[0.125]:.0f}V' in picture
    assert f'class=paper d="M{at[-0.5]:.0f} 3l' in picture
    assert bar(row("a", "supported", ci_low=None), (-1, 1)) == ""
    assert common_axis([]) == ((-1.0, 1.0), "")
    assert in_multiples(made_up)["ours"] == 4


def test_printed_numbers_are_counted_and_those_off_are_told(catalog, tmp_path):
    """Of three made-up shares of Table 1: as printed, cut where it should be rounded, and 10% too high."""
    recipe = catalog.recipes["paper_audit"]
    names = [name for name in recipe.estimates if name.startswith("saved-")]
    values = {name: recipe.estimates[name].paper.value for name in names}
    values[names[1]] += 0.06
    values[names[2]] *= 1.1
    folder = tmp_path / "laptop/paper_audit"
    folder.mkdir(parents=True)
    every = [{"panel": "estimates", "what": name, "value": values.get(name, 0.0)} for name in recipe.estimates]
    pd.DataFrame(every).to_csv(folder / "data.csv", index=False)
    numbers = printed_numbers(recipe, folder / "data.csv", "saved")
    assert [number.same for number in numbers] == [True, False, False, True, True]
    assert numbers[2].deviation == "+10%"
    verdict = row("table-1", "contradicted", origin="arithmetic", kind="exact", ci_low=None, ci_high=None, arms=[])
    told = view({"paper_audit/table-1": verdict}, catalog, tmp_path, supports=["paper_audit/table-1"])
    assert (told["value"], told["word"]) == ("3 of 5", NO)
    assert [number.label for number in told["lines"][0]["off"]] == [recipe.estimates[n].label for n in names[1:3]]
    assert told["picture"].count("class=full") == 3
    assert told["picture"].count("class=open") == 2
    assert squares([]) == ""
