"""Metrics as recipes write them: what the function gets, and which word is refused."""

from types import ModuleType
from typing import Annotated, Literal

import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures import comparison, scaling
from stemrepro.measures.base import conditions_of, refusal
from stemrepro.measures.metric import Call, ShapeName, VariantName, metrics_of, read
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect


def lead(
    scores: Scores, high: str, low: str, way: Literal["up", "down"], length: Literal[8, 16] = 8, half: bool = False,
    at: VariantName | None = None,
) -> Effect:  # fmt: skip
    """What is ahead
    of what.

    And more.
    """
    return scores, high, low, way, length, half, at


def early(scores: Scores, high: str, low: str, share: float = 0.5, own: bool = False) -> Effect | None:
    """What comes first."""
    return share, own


def changed(scores: Scores, high: str, low: str) -> Effect:
    """What is other."""


def count(scores: Scores, shape: ShapeName, what: Annotated[str, ("rows", "columns")] = "rows") -> int:
    """What is counted."""
    return shape, what


def helper(scores: Scores, arm: str) -> Effect:
    """No metric: it isn't of a claim's arms."""


def words(high: str, low: str) -> Effect:
    """No metric: it has no scores."""


KNOWN = {function.__name__: function for function in (lead, early, changed, count)}


@pytest.fixture
def called(catalog):
    """called(metric) -> how a recipe's metric is read."""
    return lambda metric: read(metric, KNOWN, catalog, catalog.recipes["token_ladder"], "metric")


@pytest.mark.parametrize(
    ("metric", "got"),
    [
        ({"lead": "up"}, ("up", 8, False, None)),
        ({"lead": "down", "length": 16, "half": True}, ("down", 16, True, None)),
        ({"lead": "up", "at": "rung-1"}, ("up", 8, False, "rung-1")),
        ({"lead": "up", "at": "main"}, ("up", 8, False, "main")),
    ],
)
def test_a_function_gets_the_settings_by_name(called, metric, got):
    assert called(metric).effect("scores", "a", "b") == ("scores", "a", "b", *got)


def test_numbers_by_themselves_and_own_settings(called):
    assert called("early").effect(None, "a", "b") == (0.5, False)
    assert called({"early": 1}).own(None, "a", "b") == (1, True)
    assert called("changed").own(None, "a", "b") is None
    assert called({"count": "qwen2.5-7b"}).value(None) == ("qwen2.5-7b", "rows")
    assert [called(metric).exact for metric in ("changed", {"count": "qwen2.5-7b"})] == [False, True]
    assert called({"lead": "up"}).words == "What is ahead of what"


def test_another_function_gets_those_of_the_settings_that_it_has(called):
    def levels(scores: Scores, length: int, other: int = 3) -> tuple:
        return scores, length, other

    assert called({"lead": "up", "length": 16}).asked(levels, "scores", other=4, third=5) == ("scores", 16, 4)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("leed", r"metric 'leed' is unknown; did you mean 'lead'\? \(measure 'scaling' has lead, early, changed, "),
        ({"chnged": "up"}, r"metric 'chnged' is unknown; did you mean 'changed'\?"),
        ("lead", r"metric 'lead': 'way' is missing; 'lead' has way, length, half, at"),
        ({"lead": "upp"}, r"metric 'lead: upp': way 'upp' is unknown; did you mean 'up'\? .* has up, down\)"),
        ({"lead": "up", "length": 9}, r"'lead: up, length: 9': length '9' is unknown .*8, 16"),
        ({"lead": "up", "length": "8"}, r"length '8' is unknown"),
        ({"lead": "up", "at": "rung-11"}, r"at 'rung-11' is unknown; did you mean 'rung-1'\? .* has main, rung-1, "),
        ({"lead": "up", "hlf": True}, r"setting 'hlf' is unknown; did you mean 'half'\?"),
        ({"lead": "up", "half": 1}, r"'half' is 1; it must be of type bool"),
        ({"early": "all"}, r"'share' is 'all'; it must be of type float"),
        ({"early": 0.1, "own": True}, r"setting 'own' is unknown"),
        ({"changed": "up"}, r"'changed' has no settings; write 'changed' alone"),
        ({"count": "qwen2.5-71b"}, r"shape 'qwen2.5-71b' is unknown; did you mean 'qwen2.5-7b'\?"),
    ],
)  # fmt: skip
def test_the_first_wrong_word_is_named_with_those_that_fit(called, metric, words):
    with pytest.raises(UserError, match=words):
        called(metric)


def test_metrics_are_public_functions_of_scores_that_give_an_effect_of_two_arms_or_a_number():
    module = ModuleType("measure")
    module.__dict__.update(KNOWN, helper=helper, words=words, _lead=lead, Call=Call)
    module.asked, module.comparison = scaling.no_gain_without_information, comparison  # which has a decorator's name
    assert metrics_of(module) == KNOWN
    assert conditions_of(module) == {"asked": scaling.no_gain_without_information}


def test_an_exact_metric_is_of_an_exact_claim(catalog, monkeypatch):
    recipe = catalog.recipes["token_ladder"]
    claim = next(iter(recipe.claims.values())).model_copy(update={"requires": ()})
    module = ModuleType("measure")
    module.count, module.lead = count, lead
    monkeypatch.setattr("stemrepro.measures.base.measure_module", lambda name: module)
    of_arms = claim.model_copy(update={"metric": {"count": "qwen2.5-7b"}})
    assert "is a number by itself, without arms" in refusal(catalog, recipe, of_arms)
    effect = claim.model_copy(update={"metric": {"lead": "up"}})
    assert refusal(catalog, recipe, effect) is None
    exact = effect.model_copy(update={"kind": "exact", "arms": ()})
    assert "is a contrast, which needs arms" in refusal(catalog, recipe, exact)


def test_a_condition_that_the_claim_could_not_fail_or_the_recipe_can_not_answer_is_refused(catalog):
    recipe = catalog.recipes["token_ladder"]
    claim = recipe.claims["third-below-dense-at-the-papers-ratio"]
    assert refusal(catalog, recipe, claim) is None
    for change, words in (
        ({"requires": ("no_gain_without_infomation",)}, "did you mean 'no_gain_without_information'"),
        ({"arms": ("dense", "stem-frozen")}, "looks at the claim's own contrast, so that the claim could not fail"),
        ({"unit": "points"}, r"compares losses, so unit must be nats/token (got 'points')"),
    ):
        assert words in refusal(catalog, recipe, claim.model_copy(update=change))
    fewer = recipe.model_copy(update={"arms": ("stem-third", "stem-full")})
    assert "needs the arm 'dense', which the recipe lacks" in refusal(catalog, fewer, claim)
    fewer = recipe.model_copy(update={"arms": ("dense", "stem-third")})
    assert "needs the arm 'stem-frozen' or 'stem-shuffled'" in refusal(catalog, fewer, claim)
