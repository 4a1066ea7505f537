"""The scores that a recipe reads: what every function of a measure gets first."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from stemrepro.config.address import MAIN, Address
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.config.scale import Scale

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Scores:
    """A recipe at a scale, and where the scores of its arms lie.

    Attributes:
        name: of the recipe.
        folder: scores/<scale>.
        read: what functions with `kept` have read or fitted.
    """

    name: str
    catalog: Catalog
    scale_name: str
    folder: Path
    read: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False)

    @property
    def recipe(self) -> Recipe:
        return self.catalog.recipes[self.name]

    @property
    def scale(self) -> Scale:
        return self.catalog.scale(self.scale_name)

    def places(self) -> list[Address]:
        """Return every arm at the scale itself, then the recipe's variants with their arms."""
        variants = [Address(variant, arm) for variant in self.recipe.variants for arm in self.recipe.arms_at(variant)]
        return [Address(MAIN, arm) for arm in self.recipe.arms] + variants


def kept(function: Callable[Concatenate[Scores, P], R]) -> Callable[Concatenate[Scores, P], R]:
    """Keep what a function of scores returns for as long as these exist: files are read, and laws fitted, once."""
    signature = inspect.signature(function)

    @wraps(function)
    def kept_result(scores: Scores, *settings: P.args, **named: P.kwargs) -> R:
        bound = signature.bind(scores, *settings, **named)
        bound.apply_defaults()
        place = (function, *list(bound.arguments.values())[1:])
        if place not in scores.read:
            scores.read[place] = function(scores, *settings, **named)
        return scores.read[place]

    return cast("Callable[Concatenate[Scores, P], R]", kept_result)
