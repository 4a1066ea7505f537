"""What was measured of a recipe's arms, at the scale and at the recipe's points."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.evaluation.buckets import BUCKETS, bucket_name
from stemrepro.recipe import Arm, Claim, Recipe
from stemrepro.report import items, scores
from stemrepro.report.items import ArmItems
from stemrepro.report.scores import ArmScores
from stemrepro.scale import Scale

OWN_RATE = "own-rate"
"""The point at which arms are trained at the best rates of their families."""


@dataclass
class Measured:
    """One arm: losses at the scale (or the recipe's base) with the recipe's seeds, benchmark items where the recipe has
    tasks, losses or steps at points."""

    losses: ArmScores
    items: ArmItems | None = None
    points: dict[str, ArmScores] = field(default_factory=dict)

    @property
    def summary(self) -> dict:
        """Costs and hashes of the runs at the scale."""
        return self.losses.summary


def read_arms(name: str, recipe: Recipe, folder: Path) -> dict[str, Measured]:
    """Everything that recipe `name` reads of its arms below `folder`, scores/<scale>."""
    found = {}
    for arm in recipe.arms:
        points = {point: ArmScores(folder / name / arm / point / "losses") for point in recipe.points_of(arm)}
        losses = points.pop(recipe.base, None) or ArmScores(folder / arm / "losses", recipe.seeds_of(arm))
        found[arm] = Measured(losses, ArmItems(folder / arm / "benchmarks", recipe) if recipe.tasks else None, points)
    return found


def all_runs(measured: dict[str, Measured]) -> dict[str, ArmScores]:
    """The losses of all runs behind a recipe, at the scale and at points."""
    runs = {arm: found.losses for arm, found in measured.items()}
    return runs | {f"{arm} at {point}": own for arm, found in measured.items() for point, own in found.points.items()}


def cost_rows(measured: dict[str, Measured], arm: str) -> list[dict]:
    """Two lines of data.csv: an arm's FLOPs a token and its parameters in all, as multiples of dense's."""
    own, dense = measured[arm].summary, measured["dense"].summary
    costs = {
        "FLOPs": own["forward_flops_per_token"] / dense["forward_flops_per_token"],
        "parameters": own["parameters"]["total"] / dense["parameters"]["total"],
    }
    return [{"panel": what, "what": arm, "value": value} for what, value in costs.items()]


def at_own_rate(name: str, measured: Measured, arm: Arm, scale: Scale) -> ArmScores | None:
    """Losses of an arm at its family's best rates: of the point, or of the scale itself where its rate is the best; else None."""
    if OWN_RATE in measured.points:
        return measured.points[OWN_RATE]
    best = scale.best_rates.get(arm.family or name)
    common = (scale.learning_rate, arm.table_rate_factor)
    return measured.losses if best and (best.learning_rate, best.table_rate_factor) == common else None


class Comparison:
    """Contrasts of losses and benchmark scores at common rates, and of losses at own best rates where both arms have them."""

    def __init__(self, arms: dict[str, Arm], scale: Scale) -> None:
        self.arms, self.scale = arms, scale

    def contrast(self, measured: dict[str, Measured], high: str, low: str, metric: str) -> Contrast:
        """metric(high) - metric(low) by seed, over the seeds that both have; nan for a bucket that no target fell into."""
        if self.empty_bucket(measured, metric):
            return Contrast(np.full(measured[high].summary["seeds"], np.nan))
        if metric.startswith(("accuracy", "margin")):
            return items.contrast({arm: found.items for arm, found in measured.items()}, high, low, metric)
        return scores.contrast({arm: found.losses for arm, found in measured.items()}, high, low, metric)

    @staticmethod
    def empty_bucket(measured: dict[str, Measured], metric: str) -> str | None:
        """The bucket that a metric restricts losses to, when no target of the scale fell into it."""
        by, _, bucket = metric.partition(":")[2].partition("=")
        if by not in BUCKETS:
            return None
        names = [bucket_name(BUCKETS[by], number) for number in range(len(BUCKETS[by]))]
        rows = next(iter(measured.values())).losses.losses
        return bucket if bucket in names and not ((rows.by == by) & (rows.bucket == bucket)).any() else None

    def own_rate_contrast(self, measured: dict[str, Measured], high: str, low: str, metric: str) -> Contrast | None:
        """The same with each arm at its own best rates; None where they are not known, for other metrics than losses, or when
        they are the common ones for both."""
        if metric.startswith(("accuracy", "margin")) or self.empty_bucket(measured, metric):
            return None
        own = {arm: at_own_rate(arm, measured[arm], self.arms[arm], self.scale) for arm in (high, low)}
        if any(found is None for found in own.values()) or all(own[arm] is measured[arm].losses for arm in own):
            return None
        return scores.contrast(own, high, low, metric)

    def failed_precondition(self, claim: Claim, measured: dict[str, Measured]) -> str | None:
        """Why a claim can't be tested at this scale, or None."""
        if bucket := self.empty_bucket(measured, claim.metric):
            return f"no target at this scale fell into the bucket {bucket}"
        if claim.precondition == "dense-beats-answer-only":
            return items.failed_precondition(claim, {arm: found.items for arm, found in measured.items()})
        return scores.failed_precondition(claim, {arm: found.losses for arm, found in measured.items()})
