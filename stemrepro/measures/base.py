"""Measures: files of functions that metrics name, and conditions under which claims can be tested."""

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stemrepro import measures
from stemrepro.common.errors import UserError, unknown
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Claim, Estimate, Metric, Recipe
from stemrepro.measures import metric as metrics
from stemrepro.measures.metric import LOSS_UNIT, Call, metrics_of
from stemrepro.measures.protocol import check_one_plan
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, of_share
from stemrepro.verdicts.rule import TOO_EASY, TOO_SMALL

F = TypeVar("F", bound=Callable[..., Any])


class Condition(NamedTuple):
    """What a claim's `requires` looks at.

    Attributes:
        fails: what a claim is where the condition fails, one of stemrepro.verdicts.rule.UNTESTED.
        arms: whose scores it looks at. A claim may share one of them, never its whole contrast: else it could not fail.
        any_of: whose scores it looks at as well, as far as the recipe has them. It needs one of them.
    """

    fails: str
    arms: tuple[str, ...]
    any_of: tuple[str, ...] = ()


def condition(fails: str, arms: tuple[str, ...] = (), any_of: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Declare a function as a condition, which returns why a claim can't be tested, or None; see Condition.

    The function gets scores, and of the claim's settings and its `smallest_effect` those that it has as arguments. It
    gets no names of the claim's arms, so that it can't look at the result. Its docstring says what it asks.
    """

    def declared(function: F) -> F:
        function.condition = Condition(fails, arms, any_of)  # type: ignore[attr-defined]
        return function

    return declared


def on_scale(levels: Callable[..., "list[Level]"]) -> Callable[[F], F]:
    """Declare a metric as a share in percent; `levels` tells where dense stands on it, by scores and its settings."""

    def declared(function: F) -> F:
        function.levels = levels  # type: ignore[attr-defined]
        return function

    return declared


@cache
def conditions_of(module: ModuleType) -> dict[str, Callable[..., str | None]]:
    """Return the conditions of a measure by name."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return {name: function for name, function in functions if hasattr(function, "condition")}


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
    def share(self) -> Effect:
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


@cache
def measure_module(name: str) -> ModuleType:
    """Return a file of stemrepro/measures as a module; UserError lists those that exist."""
    names = [found.name for found in pkgutil.iter_modules(measures.__path__)]
    if name not in names:
        raise unknown("measure", name, names, "stemrepro/measures")
    return import_module(f"{measures.__name__}.{name}")


def study_of(recipe: Recipe) -> str:
    """Return the study whose tables a recipe's measure reads, a module of stemrepro.published, or ""."""
    return getattr(measure_module(recipe.measure), "STUDY", "")


def reads_text(recipe: Recipe) -> bool:
    """Tell whether a recipe's measure also reads what was counted in the text alone."""
    return getattr(measure_module(recipe.measure), "READS_TEXT", False)


def over(recipe: Recipe) -> str:
    """Return what the intervals of a recipe without arms are over, or ""."""
    return getattr(measure_module(recipe.measure), "OVER", "")


def scores_of(name: str, catalog: Catalog, scale: str, folder: Path) -> Scores:
    """Return the scores of a recipe in scores/<scale>; UserError where they are of two plans."""
    scores = Scores(name, catalog, scale, folder)
    check_one_plan(scores)
    return scores


def call(metric: Metric, catalog: Catalog, recipe: Recipe) -> Call:
    """Read a recipe's metric; UserError names what it can't be."""
    return metrics.read(metric, metrics_of(measure_module(recipe.measure)), catalog, recipe, "metric")


def requirement(asked: Metric, claim: Claim, catalog: Catalog, recipe: Recipe) -> Call:
    """Read a condition, with the settings of its claim's metric that it has too; UserError names what it can't be."""
    known, claimed = conditions_of(measure_module(recipe.measure)), call(claim.metric, catalog, recipe).settings
    return metrics.read(asked, known, catalog, recipe, "condition", claimed)


def refusal(catalog: Catalog, recipe: Recipe, asked: Claim | Estimate) -> str | None:
    """Return why a measure can't give a claim or an estimate of a recipe, or None."""
    try:
        read = call(asked.metric, catalog, recipe)
        if read.exact != (not asked.arms):
            what = "number by itself, without arms (kind: exact)" if read.exact else "contrast, which needs arms"
            return f"metric '{read.function.__name__}' is a {what}"
        if isinstance(asked, Claim):
            for name in asked.requires:
                if reason := _refused(requirement(name, asked, catalog, recipe), recipe, asked):
                    return reason
    except UserError as error:
        return str(error)
    return None


def _refused(asked: Call, recipe: Recipe, claim: Claim) -> str | None:
    of: Condition = asked.function.condition  # type: ignore[attr-defined]
    words = f"condition '{asked.function.__name__}'"
    arms = set(recipe.arms)
    looked_at = {*of.arms, *of.any_of, *arms.intersection(map(str, asked.settings.values()))}
    if missing := set(of.arms) - arms if arms else set():
        return f"{words} needs the arm '{min(missing)}', which the recipe lacks"
    if of.any_of and not arms & set(of.any_of):
        controls = " or ".join(f"'{arm}'" for arm in of.any_of)
        return f"{words} needs the arm {controls}; add one to the recipe's arms, or leave the condition out"
    if "smallest_effect" in inspect.signature(asked.function).parameters and claim.unit != LOSS_UNIT:
        return f"{words} compares losses, so unit must be {LOSS_UNIT} (got '{claim.unit}')"
    if claim.arms and set(claim.arms) <= looked_at:
        return f"{words} looks at the claim's own contrast, so that the claim could not fail"
    return None


def levels_of(read: Call, scores: Scores) -> "list[Level]":
    """Return where dense stands on a metric in percent, at each place that it compares; none for other metrics."""
    levels = getattr(read.function, "levels", None)
    return read.asked(levels, scores) if levels else []


def failure(scores: Scores, claim: Claim) -> tuple[str, str] | None:
    """Return why a claim can't be tested, and of which kind that is, or None.

    The reason is dense's level on its metric, else that of the first condition that fails: its 95% interval shows it,
    so that no noise excuses a claim.
    """
    read = call(claim.metric, scores.catalog, scores.recipe)
    for level in levels_of(read, scores):
        if off := level.failure():
            return off
    for name in claim.requires:
        asked = requirement(name, claim, scores.catalog, scores.recipe)
        if reason := asked.asked(asked.function, scores, smallest_effect=claim.smallest_effect):
            return reason, asked.function.condition.fails  # type: ignore[attr-defined]
    return None
