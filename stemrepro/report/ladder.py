"""Slopes of gaps over doublings of tokens and of width."""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.recipe import Claim, Recipe
from stemrepro.report import scores
from stemrepro.report.arms import Measured
from stemrepro.report.scores import ArmScores
from stemrepro.scale import Scale

AXES = ("tokens", "width")


def places(recipe: Recipe, scale: Scale, axis: str) -> dict[float, str | None]:
    """Points along an axis, by tokens a run or by width, in rising order; the scale itself (None) ends the axis of tokens.

    Along the width all points have the same tokens, those of the point where only they differ from the scale.
    """
    narrow = [point.tokens for point in recipe.points.values() if point.width != 1]
    if axis == "width":
        return dict(sorted((p.at(scale).model.width, name) for name, p in recipe.points.items() if p.tokens in narrow))
    at = {p.at(scale).training.tokens: name for name, p in recipe.points.items() if p.width == 1}
    return dict(sorted({**at, scale.training.tokens: None}.items()))


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
