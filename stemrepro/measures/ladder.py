"""Slopes of gaps over doublings of tokens and of width."""

from typing import ClassVar

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.measures import losses
from stemrepro.measures.base import Inputs
from stemrepro.measures.comparison import Comparison
from stemrepro.scale import Point
from stemrepro.scores.losses import ArmLosses

AXES = ("tokens", "width")


class Ladder(Comparison):
    """Contrasts of slopes; the recipe names the points, the scale says where they lie."""

    metrics: ClassVar[dict[str, str]] = losses.METRICS | {
        axis: f"slope of the prose gap of two arms a doubling of {axis}, by seed" for axis in AXES
    }
    preconditions: ClassVar[dict] = {}

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        named = {name: inputs.book.points[name] for name in inputs.recipe.points}
        # Another start, or each arm's own rate, measures a place anew and is no place of its own.
        self.points = {name: own for name, own in named.items() if not (own.official_start or own.own_rate)}

    def places(self, axis: str) -> dict[float, str | None]:
        """Points along an axis, by tokens a run or by width, in rising order; None is the scale itself.

        Widths are compared at one budget; the scale's width stands there at the point, or the scale, that has it.

        Raises:
            UserError: the points with other widths have several budgets.
        """
        everywhere: dict[str | None, Point] = {**self.points, None: Point()}
        scale = self.inputs.scale
        if axis == "tokens":
            at = {point.at(scale).training.tokens: name for name, point in everywhere.items() if point.width == 1}
            return dict(sorted(at.items()))
        budgets = {point.tokens for point in self.points.values() if point.width != 1}
        if len(budgets) > 1:
            raise UserError(f"points with other widths need one budget; they have tokens {sorted(budgets)}")
        return dict(sorted((p.at(scale).model.width, name) for name, p in everywhere.items() if p.tokens in budgets))

    def losses(self, arm: str, point: str | None) -> ArmLosses:
        """An arm's losses at a point or at the scale itself, of the seeds that all of these share: the first so many."""
        recipe = self.inputs.recipe
        seeds = min(recipe.seeds_of(arm), *(recipe.points[name].seeds for name in self.points))
        return ArmLosses(self.all_losses(arm, point).folder, seeds)

    def all_losses(self, arm: str, point: str | None) -> ArmLosses:
        """The same of all its seeds there.

        Raises:
            UserError: the recipe doesn't want the arm there.
        """
        own = self.arms[arm]
        if point and point not in own.points:
            raise UserError(f"the recipe has no arm '{arm}' at '{point}'; add it to the point's arms")
        return own.points[point] if point else own.losses

    def gaps(self, high: str, low: str, axis: str) -> dict[float, Contrast]:
        """Prose loss of `high` less that of `low` at each place of an axis."""
        return {
            at: losses.contrast(self.losses(high, point), self.losses(low, point), "prose")
            for at, point in self.places(axis).items()
        }

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """Slope of the gap per doubling of "tokens" or "width", by seed; other metrics are losses at the scale itself."""
        if metric not in AXES:
            return super().contrast(high, low, metric)
        gaps = self.gaps(high, low, metric)
        return Contrast(losses.slope(np.array(list(gaps)), np.stack([gap.differences for gap in gaps.values()])))
