"""Questions and their answers, from made-up verdicts."""

import pandas as pd
import pytest

from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.questions import Question, read_questions
from stemrepro.config.recipe import metric_text
from stemrepro.report.estimates import printed_numbers
from stemrepro.report.questions import answered, place_bars
from stemrepro.verdicts.answer import NO, PARTLY, YES
from tests.conftest import ROOT
from tests.report.made_up import row

LADDER = "token_ladder/full-below-dense-at-the-papers-ratio"
FLOPS, LATENCY, TABLE = (f"rivals/{name}" for name in ("equal-flops", "equal-latency", "over-bigram-table"))


def view(rows: dict[str, dict], catalog, results=ROOT / "results", **fields: object) -> dict:
    question = Question(asked="Is it?", label="what it is", panel="rivals/a", **fields)
    return answered(question, {name: [named(name, one)] for name, one in rows.items()}, catalog, results)


def named(name: str, one: dict) -> dict:
    """A row as pages have it."""
    return one | {"name": name, "recipe": name.partition("/")[0], "id": f"laptop/{name}"}


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
        rows = {name: [named(name, row("a", good))] for name in question.supports}
        rows |= {name: [named(name, row("a", bad))] for name in question.opposes}
        assert answered(question, rows, catalog, ROOT / "results")["word"] == word


def test_the_papers_claims_come_first_and_those_not_attempted_are_folded(catalog):
    rows = made(equal_flops="supported") | {LADDER: row("x", "supported", origin="paper")}
    rows[FLOPS]["origin"] = "control"
    rows[LATENCY] = row("equal-latency", "not tested", untested="not attempted")
    told = view(rows, catalog, supports=[FLOPS, LATENCY, "retrofit/gain-full", LADDER])
    assert [one["name"] for one in told["claims"]] == [LADDER, FLOPS]
    assert told["not_attempted"] == {catalog.recipes["rivals"].title: 1, catalog.recipes["retrofit"].title: 1}
    assert told["split"] == "the paper's results: 1 yes; our own questions: 1 yes, 2 not tested"


def test_claims_share_an_axis_in_their_unit_or_in_what_counts():
    """Places are linear, so that an effect twice as large lies twice as far from 0."""
    one, two = row("a", "supported", id="a"), row("b", "supported", id="b", ours=0.2, ci_high=0.25)
    axis = place_bars([one, two, row("c", "supported", id="c", ci_low=None)])
    far = {key: bar["mean"] - axis["zero"] for key, bar in axis["bars"].items()}
    assert (axis["unit"], set(far)) == ("nats/token", {"a", "b"})
    assert far["b"] == pytest.approx(2 * far["a"], abs=0.2)
    bar, length = axis["bars"]["a"], far["a"] / 0.1  # percent of a nat/token
    places = [bar[name] - axis["zero"] for name in ("low", "high", "least", "most", "paper")]
    assert places == pytest.approx([length * value for value in (0.05, 0.15, -0.02, 0.02, 0.05)], abs=0.2)
    assert 0 < min(bar["low"], bar["least"]) < max(place for place, _ in axis["ticks"]) < 100
    other = {"unit": "points", "ours": 30, "ci_low": 20, "ci_high": 40, "smallest_effect": 10, "paper": None}
    axis = place_bars([one, two | other | {"differences": [20, None, 40]}])
    assert axis["unit"] == "times the smallest effect that counts"
    far = {key: bar["mean"] - axis["zero"] for key, bar in axis["bars"].items()}
    assert far["b"] == pytest.approx(3 / 5 * far["a"], abs=0.2)  # 0.1 of 0.02 is 5 times what counts, 30 of 10 is 3
    assert [axis["bars"]["b"][name] for name in ("low", "high")] == axis["bars"]["b"]["seeds"]
    assert (axis["bars"]["b"]["paper"], place_bars([])["bars"]) == (None, {})


def test_printed_numbers_are_counted_and_those_off_are_told(catalog, tmp_path):
    """Of three made-up shares of Table 1: as printed, cut where it should be rounded, and 10% too high."""
    recipe = catalog.recipes["paper_audit"]
    names = [name for name in recipe.estimates if name.startswith("saved-")]
    values = {name: recipe.estimates[name].paper.value for name in names}
    values[names[1]] += 0.06  # a slip of the last digit
    values[names[2]] *= 1.1
    folder = tmp_path / "laptop/paper_audit"
    folder.mkdir(parents=True)
    every = [{"panel": "estimates", "what": name, "value": values.get(name, 0.0)} for name in recipe.estimates]
    pd.DataFrame(every).to_csv(folder / "data.csv", index=False)
    numbers = printed_numbers(recipe, folder / "data.csv", "saved")
    assert [number.same for number in numbers] == [True, False, False, True, True]
    assert [number.deviation for number in numbers[1:3]] == ["+0.26%, a slip of the last digit", "+10%"]
    asked = {"origin": "arithmetic", "kind": "exact", "metric": metric_text(recipe.claims["table-1"].metric)}
    verdict = row("table-1", "contradicted", **asked, ci_low=None, ci_high=None, arms=[])
    told = view({"paper_audit/table-1": verdict}, catalog, tmp_path, supports=["paper_audit/table-1"])
    assert (told["number"], told["interval"], told["word"]) == ("3 of 5, and 1 slip of the last digit", "", NO)
    off = [number.label for number in told["claims"][0]["printed"] if not number.same]
    assert off == [recipe.estimates[name].label for name in names[1:3]]


def test_what_the_question_on_equal_size_says_of_other_recipes_is_so():
    """Its label's words on FLOPs and on STEM 1/3; no claim is about them."""
    said = read_yaml(ROOT / "recipes/questions.yaml")["equal-parameters"]
    assert "STEM 1/3 is ahead of dense of its own size on the leaderboard" in said["label"]
    rivals = pd.read_csv(ROOT / "results/laptop/rivals/data.csv")
    flops = rivals.set_index(["panel", "what"])["value"]["FLOPs over STEM full's", "dense-equal-size"].item()
    assert f"for {flops:.1f} times the FLOPs" in said["label"]
    rows = pd.read_csv(ROOT / "results/leaderboard/leaderboard/data.csv")
    (lead,) = rows[(rows["panel"] == "lead") & (rows["what"] == "stem-third") & (rows["x"] == "parameters")]["ci_low"]
    assert lead > 0
