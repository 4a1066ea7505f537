"""Contrasts of how tables are made: rate or decay alone, and bits per byte over vocabularies."""

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.recipe import Arm, Claim, Recipe
from stemrepro.report import scores
from stemrepro.report.arms import OWN_RATE, Comparison, Measured
from stemrepro.report.ladder import slope
from stemrepro.report.scores import ArmScores
from stemrepro.scale import Scale


class Tables(Comparison):
    """Contrasts of recipes/table_design.yaml, which defines the metrics and the points."""

    def __init__(self, arms: dict[str, Arm], scale: Scale, recipe: Recipe) -> None:
        super().__init__(arms, scale)
        self.recipe = recipe

    def vocabularies(self, found: Measured) -> dict[int, ArmScores]:
        """An arm's runs by size of the vocabulary, the scale's among them, all of as much text."""
        own = {
            point.at(self.scale).model.vocab: found.points[name]
            for name, point in self.recipe.points.items()
            if point.vocab != 1
        }
        return dict(sorted({**own, self.scale.model.vocab: found.losses}.items()))

    def contrast(self, measured: dict[str, Measured], high: str, low: str, metric: str) -> Contrast:
        """As a comparison, and "decay", "rate": losses with STEM full at its family's best rates; "vocabulary": slope of the difference
        in bits per byte a doubling, by seed."""
        if metric in ("decay", "rate"):
            pair = {arm: measured[arm].points.get(OWN_RATE, measured[arm].losses) for arm in (high, low)}
            return scores.contrast(pair, high, low, "prose")
        if metric != "vocabulary":
            return super().contrast(measured, high, low, metric)
        first, second = self.vocabularies(measured[high]), self.vocabularies(measured[low])
        gaps = [(first[size].bits_per_byte() - second[size].bits_per_byte()).to_numpy() for size in first]
        return Contrast(slope(np.array(list(first)), np.stack(gaps)))

    def own_rate_contrast(self, measured: dict[str, Measured], high: str, low: str, metric: str) -> Contrast | None:
        """Of dense against STEM full as a comparison; None for all that varies a table's rate, start or form, whose best rates are not
        known."""
        known = {high, low} <= {"dense", "stem-full"} and metric.startswith("prose")
        return super().own_rate_contrast(measured, high, low, metric) if known else None

    def failed_precondition(self, claim: Claim, measured: dict[str, Measured]) -> str | None:
        """As a comparison."""
        return None if claim.metric in ("decay", "rate", "vocabulary") else super().failed_precondition(claim, measured)
