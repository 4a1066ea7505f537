"""Slopes of gaps over doublings of tokens and of width."""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.recipe import Claim, Recipe
from stemrepro.report import scores
from stemrepro.report.arms import Measured
from stemrepro.report.scores import ArmScores
from stemrepro.scale import Point, Scale

AXES = ("tokens", "width")


def places(recipe: Recipe, scale: Scale, axis: str) -> dict[float, str | None]:
    """Points along an axis, by tokens a run or by width, in rising order; None is the scale itself.

    Widths are compared at one budget; the scale's width stands there at the point, or the scale, that has it.

    Raises:
        UserError: the points with other widths have several budgets.
    """
    everywhere: dict[str | None, Point] = {**recipe.points, None: Point()}
    if axis == "tokens":
        at = {point.at(scale).training.tokens: name for name, point in everywhere.items() if point.width == 1}
        return dict(sorted(at.items()))
    budgets = {point.tokens for point in recipe.points.values() if point.width != 1}
    if len(budgets) > 1:
        raise UserError(f"points with other widths need one budget; they have tokens {sorted(budgets)}")
    return dict(sorted((p.at(scale).model.width, name) for name, p in everywhere.items() if p.tokens in budgets))


def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least-squares slope of y [places, seeds] over log2 x, by seed."""
    centred = np.log2(x) - np.log2(x).mean()
    return (centred[:, None] * y).sum(axis=0) / (centred**2).sum()


class Ladder:
    """Contrasts of slopes; `recipe` names the points, `scale` says where they lie."""

    def __init__(self, recipe: Recipe, scale: Scale) -> None:
        self.recipe, self.scale = recipe, scale

    def losses(self, measured: Measured, point: str | None) -> ArmScores:
        """An arm's losses at a point or, on as many seeds, at the scale itself."""
        return measured.points[point] if point else ArmScores(measured.losses.folder, self.recipe.point_seeds)

    def gaps(self, measured: dict[str, Measured], high: str, low: str, axis: str) -> dict[float, Contrast]:
        """Prose loss of `high` less that of `low` at each place of an axis."""
        return {
            at: scores.contrast({arm: self.losses(measured[arm], point) for arm in (high, low)}, high, low, "prose")
            for at, point in places(self.recipe, self.scale, axis).items()
        }

    def contrast(self, measured: dict[str, Measured], high: str, low: str, metric: str) -> Contrast:
        """Slope of the gap per doubling, by seed; metric is "tokens" or "width".

        Raises:
            UserError: another metric.
        """
        if metric not in AXES:
            raise UserError(f"metric '{metric}' is unknown; a ladder has {' and '.join(AXES)}")
        gaps = self.gaps(measured, high, low, metric)
        return Contrast(slope(np.array(list(gaps)), np.stack([gap.differences for gap in gaps.values()])))

    def failed_precondition(self, claim: Claim, measured: dict[str, Measured]) -> None:
        """Slopes have no preconditions."""
        return
