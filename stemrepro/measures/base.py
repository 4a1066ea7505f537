"""What a measure is: the meaning of a recipe's metrics, against which its claims are checked when recipes are read."""

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Claim, Estimate, Recipe
from stemrepro.measures import MEASURES
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.metric import LOSS_UNIT, Field, Parsed, parse
from stemrepro.measures.protocol import check_one_plan
from stemrepro.verdicts.contrast import Contrast, of_share
from stemrepro.verdicts.rule import NOT_ATTEMPTED, TOO_EASY, TOO_SMALL


@dataclass(frozen=True)
class Precondition:
    """What must hold for a claim to be testable.

    Attributes:
        words: what it asks.
        fails: what it is where it fails, one of stemrepro.verdicts.rule.UNTESTED.
        arms: whose scores it looks at. A claim may share one of them, never its whole contrast: else it could not fail.
        any_of: whose scores it looks at as well, as far as the recipe has them. It needs one of them.
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


CEILING, LEAD = 95.0, 2.0
"""Points that dense must not be shown to exceed, and points by which it must not be shown to miss what needs no
knowledge, wherever a metric is a share in percent."""
ON_SCALE = f"dense's share is off the ceiling of {CEILING:g}% and {LEAD:g} points above what needs no knowledge"


@dataclass(frozen=True)
class Level:
    """Where dense stands on a share in percent.

    Attributes:
        percent: by seed [seeds].
        items: of which these are shares, of each seed or of all.
        floor: points that need no knowledge.
        of: what they are, in words.
    """

    percent: np.ndarray
    items: np.ndarray | float
    floor: float = 0.0
    of: str = "what needs no knowledge"

    @property
    def share(self) -> Contrast:
        return of_share(self.percent, self.items)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval in percent, formed on logits; NaN for one seed."""
        return self.share.interval(0.05)

    @property
    def words(self) -> str:
        return "{:.1f} to {:.1f}% (95%)".format(*self.interval)

    def below(self, threshold: float) -> bool:
        return self.interval[1] < threshold

    def above(self, threshold: float) -> bool:
        return self.interval[0] > threshold

    def at_floor(self) -> str | None:
        """Return a reason where the share is shown to be at its floor, or None."""
        if self.below(self.floor + LEAD):
            return f"dense scores {self.words}, less than {LEAD:g} points above the {self.floor:.1f} of {self.of}"
        return None

    def failure(self) -> tuple[str, str] | None:
        """Return why a claim about the share can't be tested, and of which kind that is, or None."""
        if reason := self.at_floor():
            return reason, TOO_SMALL
        if self.above(CEILING):
            return f"dense scores {self.words}, above {CEILING:g}: no room is left", TOO_EASY
        return None


class Measure:
    """The meaning of metrics. Each is what a method declares by `metric`, each condition one of `preconditions`.

    Args:
        inputs: a recipe, and the scores of its arms; UserError names a file that is missing or damaged.
    """

    fields: ClassVar[dict[str, Field]] = {
        "variant": lambda catalog, recipe: tuple(recipe.variants),
        "task": lambda catalog, recipe: (*recipe.tasks, *recipe.groups),
        "shape": lambda catalog, recipe: catalog.shapes,
    }
    """What the words in the braces of metrics may be, besides those of its parents."""
    preconditions: ClassVar[dict[str, Precondition]] = {}
    reads_text: ClassVar[bool] = False
    """Does it also read what was counted in the text alone?"""
    study: ClassVar[str] = ""
    """The study of a published model or of the scale's runs whose tables it reads, a module of stemrepro.published."""
    over: ClassVar[str] = ""
    """What its intervals are over, where it has neither arms nor seeds."""
    arms: Mapping = MappingProxyType({})
    """Scores of the recipe's arms by name; none where nothing is trained."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def parse(self, metric: str) -> Parsed:
        """Read a metric; UserError names what it can't be."""
        return parse(type(self), metric, self.inputs.catalog, self.inputs.recipe)

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """Return metric(high) - metric(low), a value per seed; Unmeasured where a run diverged."""
        parsed = self.parse(metric)
        return parsed.metric.method(self, high, low, **parsed.fields)

    def value(self, metric: str) -> float:
        """Return the number of an exact claim."""
        parsed = self.parse(metric)
        return parsed.metric.method(self, **parsed.fields)

    def levels(self, metric: str) -> list[Level]:
        """Return where dense stands on a metric in percent, at each place that it compares; none for other metrics."""
        return []

    def own(self, high: str, low: str, metric: str) -> Contrast | None:
        """Return the same with each arm at its own studied settings; None where one of them wasn't trained so."""
        return None

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Return why a metric can't be tested under a condition, or None; "none" is that of the metric itself.

        It gets no names of arms, so that it can't look at the result, and `smallest_effect` where that is `by_effect`.
        """
        return None

    def runs(self) -> dict:
        """Return everything with a `summary` from which the recipe's results come, by name."""
        return dict(self.arms)


def measure_class(name: str) -> type[Measure]:
    """Return the measure of a name; UserError lists the names that exist."""
    if name not in MEASURES:
        raise unknown("measure", name, MEASURES, "stemrepro/measures")
    return pkgutil.resolve_name(MEASURES[name])


def scores_of(recipe: Recipe) -> list[Path]:
    """Return the score folders that a recipe reads, below scores/<scale>."""
    folders = [Path(part) / address.path for address, parts in recipe.scored().items() for part in parts]
    measure = measure_class(recipe.measure)
    return folders + [Path("text")] * measure.reads_text + [Path(measure.study)] * bool(measure.study)


def measured(inputs: Inputs) -> Measure:
    """Return the measure of a recipe, with the scores of its arms; UserError where these are of two plans."""
    check_one_plan(inputs)
    return measure_class(inputs.recipe.measure)(inputs)


def refusal(measure: type[Measure], catalog: Catalog, recipe: Recipe, asked: Claim | Estimate) -> str | None:
    """Return why a measure can't give a claim or an estimate of a recipe, or None."""
    try:
        parsed = parse(measure, asked.metric, catalog, recipe)
    except UserError as error:
        return str(error)
    if parsed.metric.exact != (not asked.arms):
        contrast, number = "contrast, which needs arms", "number by itself, without arms (a claim's kind is 'exact')"
        return f"metric '{asked.metric}' is a {number if parsed.metric.exact else contrast}"
    preconditions = asked.preconditions if isinstance(asked, Claim) else ()
    reasons = (_refused_precondition(measure, recipe, asked, name) for name in preconditions)
    return next(filter(None, reasons), None)


def _refused_precondition(measure: type[Measure], recipe: Recipe, claim: Claim, name: str) -> str | None:
    if name not in measure.preconditions:
        choices = "; ".join(f"{choice} ({one.words})" for choice, one in measure.preconditions.items()) or "none"
        return f"precondition '{name}' is unknown to this measure; it has {choices}"
    precondition, arms = measure.preconditions[name], set(recipe.arms)
    if missing := set(precondition.arms) - arms if arms else set():
        return f"precondition '{name}' needs the arm '{min(missing)}', which the recipe lacks"
    if precondition.any_of and not arms & set(precondition.any_of):
        controls = " or ".join(f"'{arm}'" for arm in precondition.any_of)
        words = f"precondition '{name}' needs the arm {controls}"
        return f"{words}; add one to the recipe's arms, or leave the precondition out"
    if precondition.by_effect and claim.unit != LOSS_UNIT:
        return f"precondition '{name}' compares losses, so unit must be {LOSS_UNIT} (got '{claim.unit}')"
    if claim.arms and set(claim.arms) <= set(precondition.looked_at):
        return f"precondition '{name}' looks at the claim's own contrast, so that the claim could not fail"
    return None


def failure(measure: Measure, claim: Claim) -> tuple[str, str] | None:
    """Return why a claim can't be tested, and of which kind that is, or None.

    The reason is its metric's, else dense's level on it, else that of the first precondition that fails: its 95%
    interval shows it, so that no noise excuses a claim.
    """
    if reason := measure.untestable(claim.metric, "none"):
        return reason, NOT_ATTEMPTED
    for level in measure.levels(claim.metric):
        if off := level.failure():
            return off
    for name in claim.preconditions:
        precondition = measure.preconditions[name]
        effect = {"smallest_effect": claim.smallest_effect} if precondition.by_effect else {}
        if reason := measure.untestable(claim.metric, name, **effect):
            return reason, precondition.fails
    return None
