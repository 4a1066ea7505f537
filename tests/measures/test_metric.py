"""Metrics as recipes write them: what the method gets, and which word is refused."""

import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.base import Measure, refusal
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import NUMBER, WHOLE, metric


class Parent(Measure):
    fields = {"way": ("up", "down"), "length": WHOLE, "share": NUMBER, "half": {"half": True}}  # noqa: RUF012

    @metric("{way}:{length}[:{half}][@{variant}]", "a difference")
    @metric("{way=left}:{length}", "the same of the left")
    def lead(self, high, low, way, length, half=False, variant=None):
        return high, low, way, length, half, variant

    @metric("changed", "what a child changes")
    def changed(self, high, low):
        return "parent"


class Child(Parent):
    fields = {"way": ("in", "out")}  # noqa: RUF012

    @metric("changed>{share}", "what it is now")
    def changed(self, high, low, share):
        return share

    @metric("count:", "a number by itself", exact=True)
    def count(self):
        return 7


@pytest.fixture
def inputs(catalog):
    return Inputs("token_ladder", catalog, "laptop", None)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("up:8", ("up", 8, False, None)),
        ("down:16:half", ("down", 16, True, None)),
        ("up:8@rung-1", ("up", 8, False, "rung-1")),
        ("up:8:half@rung-2", ("up", 8, True, "rung-2")),
        ("left:4", ("left", 4, False, None)),
    ],
)
def test_a_method_gets_the_words_in_braces(inputs, text, got):
    assert Parent(inputs).contrast("a", "b", text) == ("a", "b", *got)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("upp", r"metric 'upp' is unknown; did you mean 'up'\? \(measure 'scaling' has up, down, left, changed\)"),
        ("upp:8", r"metric 'upp:8': way or word 'upp' is unknown; did you mean 'up'\?"),
        ("up", r"metric 'up': after 'up' comes ':', not the end"),
        ("up:8>", r"metric 'up:8>': after 'up:8' comes the end or '@' or ':', not '>'"),
        ("up:eight", r"length 'eight' is unknown \(this recipe has words like 8\)"),
        (
            "up:8@rung-11",
            r"metric 'up:8@rung-11': variant 'rung-11' is unknown; did you mean 'rung-1'\? \(this recipe has rung-1, ",
        ),
        ("up:8:whole", r"half 'whole' is unknown \(this recipe has half\)"),
        ("left:8:half", r"after 'left:8' comes the end, not ':'"),
    ],
)  # fmt: skip
def test_the_first_wrong_word_is_named_with_those_that_fit(inputs, text, words):
    with pytest.raises(UserError, match=words):
        Parent(inputs).parse(text)


def test_an_exact_metric_is_of_an_exact_claim(catalog):
    recipe = catalog.recipes["token_ladder"]
    claim = next(iter(recipe.claims.values())).model_copy(update={"preconditions": ()})
    count, lead = (claim.model_copy(update={"metric": text}) for text in ("count:", "in:8"))
    assert "is a number by itself, without arms" in refusal(Child, catalog, recipe, count)
    assert refusal(Child, catalog, recipe, lead) is None
    exact = lead.model_copy(update={"kind": "exact", "arms": ()})
    assert "is a contrast, which needs arms" in refusal(Child, catalog, recipe, exact)
