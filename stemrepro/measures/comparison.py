"""Losses and benchmark scores of arms, paired, at common rates and at own best ones."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.evaluation.buckets import BUCKETS, bucket_name
from stemrepro.measures import items, losses
from stemrepro.measures.base import Inputs, Precondition
from stemrepro.runs import MAIN, Address
from stemrepro.scores.items import ArmItems
from stemrepro.scores.losses import ArmLosses

OWN_RATES = ("own-rate", "half-own-rate")
"""Points at which arms are trained at the best rates of their families."""


@dataclass
class ArmScores:
    """One arm: losses where the recipe compares its arms, benchmark items where it has tasks, losses or steps at points."""

    losses: ArmLosses
    items: ArmItems | None = None
    points: dict[str, ArmLosses] = field(default_factory=dict)

    @property
    def summary(self) -> dict:
        """Costs and hashes of the runs."""
        return self.losses.summary


def losses_at(folder: Path, address: Address, count: int | None = None) -> ArmLosses:
    """The losses of an address below `folder`, scores/<scale>."""
    return ArmLosses(folder / "losses" / address.path, count)


def read_arms(inputs: Inputs) -> dict[str, ArmScores]:
    """Everything that a recipe reads of its arms."""
    recipe, folder, arms = inputs.recipe, inputs.folder, {}
    for arm in recipe.arms:
        points = {
            point: losses_at(folder, Address(point, arm), recipe.points[point].seeds)
            for point in recipe.points_of(arm)
            if point != recipe.base
        }
        compared = losses_at(folder, Address(recipe.base, arm), recipe.seeds_of(arm))
        own_items = ArmItems(folder / "benchmarks" / Address(MAIN, arm).path, recipe) if recipe.tasks else None
        arms[arm] = ArmScores(compared, own_items, points)
    return arms


class Comparison:
    """Contrasts of losses and benchmark scores; the arms are those of the recipe."""

    metrics: ClassVar[dict[str, str]] = losses.METRICS | items.METRICS
    preconditions: ClassVar[dict[str, Precondition]] = {
        "token-only-below-three-quarters": Precondition(
            "a memory of the last token explains less than three quarters of the gap between dense and STEM full",
            ("dense", "token-only", "stem-full"),
        ),
        "dense-beats-unigram": Precondition("at the first mark dense beats token frequencies", ("dense",)),
        "dense-beats-answer-only": Precondition(
            "dense scores above what needs no knowledge", ("dense",)
        ),
    }  # fmt: skip
    reads_text: ClassVar[bool] = False

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.arms = inputs, read_arms(inputs)

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """metric(high) - metric(low) by seed, over the seeds that both have; nan for a bucket that no target fell into."""
        if self.empty_bucket(metric):
            return Contrast(np.full(self.arms[high].summary["seeds"], np.nan))
        if metric.startswith(items.SCORES):
            return items.contrast(self.arms[high].items, self.arms[low].items, metric)
        return losses.contrast(self.arms[high].losses, self.arms[low].losses, metric)

    def empty_bucket(self, metric: str) -> str | None:
        """The bucket that a metric restricts losses to, when no target of the scale fell into it."""
        by, _, bucket = metric.partition(":")[2].partition("=")
        if by not in BUCKETS:
            return None
        names = [bucket_name(BUCKETS[by], number) for number in range(len(BUCKETS[by]))]
        rows = next(iter(self.arms.values())).losses.losses
        return bucket if bucket in names and not ((rows.by == by) & (rows.bucket == bucket)).any() else None

    def at_own_rate(self, arm: str) -> ArmLosses | None:
        """Losses of an arm at its family's best rates: of the point, or of the scale itself where its rate is the best; else None, as
        where the scale doesn't know them."""
        fields, scale = self.inputs.book.arms[arm], self.inputs.scale
        if not (best := scale.best_rates.get(fields.family or arm)):
            return None
        for point in OWN_RATES:
            if point in self.arms[arm].points:
                return self.arms[arm].points[point]
        common = (scale.learning_rate, fields.table_rate_factor)
        return self.arms[arm].losses if (best.learning_rate, best.table_rate_factor) == common else None

    def own_rate_contrast(self, high: str, low: str, metric: str) -> Contrast | None:
        """The same with each arm at its own best rates; None where they are not known, for other metrics than losses, or when
        they are the common ones for both."""
        if metric.startswith(items.SCORES) or self.empty_bucket(metric):
            return None
        own = {arm: self.at_own_rate(arm) for arm in (high, low)}
        if None in own.values() or all(own[arm] is self.arms[arm].losses for arm in own):
            return None
        return losses.contrast(own[high], own[low], metric)

    def value(self, metric: str) -> float:
        """No metric of arms is exact."""
        raise UserError(f"metric '{metric}' is a contrast of arms, not a number by itself")

    def untestable(self, metric: str, precondition: str) -> str | None:
        """See Measure.untestable and `preconditions`.

        token-only-below-three-quarters: dense - token-only is less than three quarters of dense - STEM full, on prose.
        dense-beats-answer-only: see stemrepro.measures.items.
        """
        if bucket := self.empty_bucket(metric):
            return f"no target at this scale fell into the bucket {bucket}"
        if precondition == "dense-beats-answer-only":
            return items.untestable(self.arms["dense"].items, metric)
        if precondition == "token-only-below-three-quarters":
            dense, stem, memory = (self.arms[arm].losses for arm in ("dense", "stem-full", "token-only"))
            gap, part = (losses.contrast(dense, low, "prose").mean for low in (stem, memory))
            if gap <= 0:
                return f"there is no gap between dense and stem-full to explain ({gap:.3f} nats)"
            if part >= 0.75 * gap:
                return f"the token-only control explains {100 * part / gap:.0f}% of the gap (three quarters or more)"
        if precondition == "dense-beats-unigram":
            dense = self.arms["dense"].losses.whole()
            first = float(dense.curve[dense.curve.tokens == dense.curve.tokens.min()]["prose"].mean())
            if first >= (floor := dense.summary["unigram_nats_per_token"]):
                return f"at the first mark dense ({first:.2f} nats) is no better than token frequencies ({floor:.2f})"
        return None

    def runs(self) -> dict[str, ArmLosses | ArmItems]:
        """The scores behind the recipe, where its arms are compared and at points."""
        parts = self.inputs.recipe.scores
        main = {arm: own.losses if "losses" in parts else own.items for arm, own in self.arms.items()}
        return main | {f"{arm}@{point}": at for arm, own in self.arms.items() for point, at in own.points.items()}

    def cost(self, arm: str) -> dict[str, float]:
        """An arm's FLOPs a token and its parameters in all, as multiples of dense's."""
        own, dense = self.arms[arm].summary, self.arms["dense"].summary
        return {
            "FLOPs": own["forward_flops_per_token"] / dense["forward_flops_per_token"],
            "parameters": own["parameters"]["total"] / dense["parameters"]["total"],
        }
