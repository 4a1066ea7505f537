"""What a measure is: the meaning of a recipe's metrics. A recipe names one; its claims are checked against it when recipes are read."""

import itertools
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from stemrepro.common.errors import unknown
from stemrepro.config.recipe import Claim, Recipe
from stemrepro.measures import MEASURES
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.plans import check_one_plan
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import NOT_RUN

LOSS_UNIT = "nats/token"


@dataclass(frozen=True)
class Precondition:
    """What must hold for a claim to be testable.

    Attributes:
        words: what it asks.
        fails: what it is where it fails, one of stemrepro.verdicts.rule.UNTESTED.
        arms: whose scores it looks at. A claim may share one of them, never its whole contrast: else the claim could not fail.
        any_of: whose scores it looks at as well, as far as the recipe has them; one it needs.
        by_effect: does it compare losses with the smallest effect that counts of the claim?
    """

    words: str
    fails: str
    arms: tuple[str, ...]
    any_of: tuple[str, ...] = ()
    by_effect: bool = False

    @property
    def looked_at(self) -> tuple[str, ...]:
        """All arms whose scores it may look at."""
        return self.arms + self.any_of


class Measure(Protocol):
    """The meaning of metrics. Each is a pattern of `metrics`, each condition one of `preconditions`."""

    metrics: ClassVar[dict[str, str]]
    """Pattern of a metric -> what it is."""
    preconditions: ClassVar[dict[str, Precondition]]
    reads_text: ClassVar[bool]
    """Does it also read what was counted in the text alone?"""
    inputs: Inputs

    def __init__(self, inputs: Inputs) -> None:
        """Read what the recipe's arms have; UserError names a file that is missing or damaged."""

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """metric(high) - metric(low), a value a seed; Unmeasured where a run diverged."""

    def robustness(self, high: str, low: str, metric: str) -> dict[str, Contrast]:
        """Return the same in other settings, by a name of stemrepro.verdicts.robustness.ELSEWHERE, as far as both arms were trained there."""

    def value(self, metric: str) -> float:
        """Return the number of an exact claim."""

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Return why a metric can't be tested under a condition, or None; the condition "none" is that of the metric itself. It isn't told which
        arms the claim compares; under a condition with `by_effect` it is told the claim's `smallest_effect` as well.
        """

    def runs(self) -> dict:
        """Everything with a `summary` that lies behind the recipe's results, by name."""


def measure_class(name: str) -> type[Measure]:
    """Return the measure of a name; UserError names those there are."""
    if name not in MEASURES:
        raise unknown("measure", name, MEASURES, "stemrepro/measures")
    return pkgutil.resolve_name(MEASURES[name])


def scores_of(recipe: Recipe) -> list[Path]:
    """Return the score folders that a recipe reads, below scores/<scale>."""
    folders = [Path(part) / address.path for address, parts in recipe.scored().items() for part in parts]
    return folders + ([Path("text")] if measure_class(recipe.measure).reads_text else [])


def measured(inputs: Inputs) -> Measure:
    """Return the measure of a recipe, with what there is of its arms; UserError where that is of two plans."""
    check_one_plan(inputs)
    return measure_class(inputs.recipe.measure)(inputs)


def refusal(measure: type[Measure], recipe: Recipe, claim: Claim) -> str | None:
    """Return why a measure can't judge a claim of a recipe, or None."""
    if not any(re.fullmatch(pattern, claim.metric) for pattern in measure.metrics):
        there = "; ".join(f"{pattern} ({words})" for pattern, words in measure.metrics.items())
        return f"metric '{claim.metric}' is unknown; there are {there}"
    score, _, what = claim.metric.partition(":")
    if score in ("accuracy", "margin") and what.removesuffix(":seen") not in {*recipe.tasks, *recipe.groups}:
        return f"metric '{claim.metric}' names neither a task nor a group of the recipe"
    if score == "score" and re.split("[:@]", what)[0] not in {*recipe.tasks, *recipe.groups}:
        return f"metric '{claim.metric}' names neither a task nor a group of the recipe"
    if (variant := claim.metric.partition("@")[2]) and variant not in recipe.variants:
        return f"metric '{claim.metric}' is taken at '{variant}', which is not among the recipe's variants"
    if score == "score" and variant and "reasoning" not in recipe.variants[variant].scores:
        return f"metric '{claim.metric}' is taken at '{variant}', where the recipe asks for no scores 'reasoning'"
    reasons = (_refused_precondition(measure, recipe, claim, name) for name in claim.preconditions)
    return next(filter(None, reasons), None)


def _refused_precondition(measure: type[Measure], recipe: Recipe, claim: Claim, name: str) -> str | None:
    if name not in measure.preconditions:
        known = "; ".join(f"{known} ({own.words})" for known, own in measure.preconditions.items()) or "none"
        return f"precondition '{name}' is unknown to this measure; it has {known}"
    asked, arms = measure.preconditions[name], set(recipe.arms)
    if missing := set(asked.arms) - arms if arms else set():
        return f"precondition '{name}' needs the arm '{min(missing)}', which the recipe lacks"
    if asked.any_of and not arms & set(asked.any_of):
        controls = " or ".join(f"'{arm}'" for arm in asked.any_of)
        return f"precondition '{name}' needs the arm {controls}; add one to the recipe's arms, or leave the precondition out"
    if asked.by_effect and claim.unit != LOSS_UNIT:
        return f"precondition '{name}' compares losses with smallest_effect, so unit must be {LOSS_UNIT} (got '{claim.unit}')"
    if any(set(pair) <= set(asked.looked_at) for pair in itertools.pairwise(claim.arms)):
        return f"precondition '{name}' looks at the claim's own contrast, so that the claim could not fail"
    return None


def failure(measure: Measure, claim: Claim) -> tuple[str, str] | None:
    """Return why a claim can't be tested, and of which kind that is, or None: its metric, else the first of its preconditions that fails."""
    if reason := measure.untestable(claim.metric, "none"):
        return reason, NOT_RUN
    for name in claim.preconditions:
        asked = measure.preconditions[name]
        told = {"smallest_effect": claim.smallest_effect} if asked.by_effect else {}
        if reason := measure.untestable(claim.metric, name, **told):
            return reason, asked.fails
    return None
