"""The benchmark items of an arm that `stemrepro score` wrote, and paired differences of arms, item by item.

A score is "accuracy" (points; under each task's own acc or acc_norm) or "margin" (bits), of a task, or of a group of
the recipe, whose tasks count the same. `seen` keeps the items whose fact was in a seed's training text.
"""

from dataclasses import dataclass

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.base import Level
from stemrepro.measures.reading import ArmTasks
from stemrepro.verdicts.effect import Effect, of_share, of_shares


@dataclass(frozen=True)
class Sample:
    """Item values of one arm: values and weights [seeds, items] (weights of a seed sum to 1), clusters [items]."""

    values: np.ndarray
    weights: np.ndarray
    clusters: np.ndarray

    @property
    def count(self) -> np.ndarray:
        """Number of items that weigh as much as those of each seed (Kish) [seeds]."""
        return 1 / (self.weights**2).sum(axis=1)

    @property
    def by_seed(self) -> np.ndarray:
        """Weighted mean of each seed [seeds]; NaN where nothing was measured."""
        return (self.values * self.weights).sum(axis=1) if self.values.size else np.full(len(self.values), np.nan)

    def contrast(self) -> Effect:
        """Return the means of the seeds with the error between clusters of items, linearised as in a survey."""
        if not self.values.size:
            return Effect(self.by_seed)
        influence = (self.weights * (self.values - self.by_seed[:, None])).mean(axis=0)
        _, member = np.unique(self.clusters, return_inverse=True)
        sums = np.bincount(member, weights=influence)
        groups = int((np.bincount(member, weights=self.weights.sum(axis=0)) > 0).sum())
        if groups < 2:
            return Effect(self.by_seed)
        return Effect(self.by_seed, float(np.sqrt(groups / (groups - 1) * (sums**2).sum())))

    def share(self) -> Effect:
        """Return the same of values in points, with the interval on logits."""
        return of_share(self.by_seed, self.count, self.contrast().item_se)


class ArmItems(ArmTasks):
    """Benchmark scores of one arm: what `stemrepro score --kind benchmarks` wrote."""

    kind = "benchmarks"

    def sample(self, score: str, task: str, seen: bool = False, alone: bool = False) -> Sample:
        """Return a score on a task or group: of `seen` facts only, or of the answers `alone`, without their prompt."""
        seeds, values, weights, clusters = len(self.seeds), [], [], []
        for name in self.tasks(task):
            field = "margin" if score == "margin" else ("answer_" if alone else "") + self.recipe.tasks[name].score
            value = self.by_item(name, field).astype(float) * (100 if score == "accuracy" else 1)
            stood = (self.by_item(name, "seen") > 0).astype(float)
            weights.append(stood if seen else np.full(value.shape, 1 / value.shape[1]))
            values.append(value)
            clusters.append(self.by_item(name, "cluster")[0])
        total = np.concatenate(weights, axis=1).sum(axis=1, keepdims=True) if weights else np.zeros((seeds, 1))
        if not (total > 0).all():
            return Sample(np.empty((seeds, 0)), np.empty((seeds, 0)), np.empty(0))
        return Sample(np.concatenate(values, axis=1), np.concatenate(weights, axis=1) / total, np.concatenate(clusters))

    def floors(self, task: str, seen: bool = False) -> dict[str, float]:
        """Return accuracies on a task or group that need no knowledge, in points."""
        tasks = [self.summary["tasks"][name] for name in self.tasks(task)]
        chance, frequent = (100 * float(np.mean([task[name] for task in tasks])) for name in ("chance", "majority"))
        alone = float(self.sample("accuracy", task, seen, alone=True).by_seed.mean())
        return {"chance": chance, "the most frequent answer": frequent, "answers alone": alone}

    def floor(self, task: str, seen: bool = False) -> tuple[float, str]:
        """Return the best of the floors and what it is; of a group the mean over its tasks (`seen`: as of one task)."""
        floors = [self.floors(task, seen)] if seen else [self.floors(name) for name in self.tasks(task)]
        best = max(floors[0], key=lambda what: floors[0][what]) if len(floors) == 1 else "what needs no knowledge"
        return float(np.mean([max(floor.values()) for floor in floors])), best


MARGIN_LEAD = 0.05  # bits that the prompt must add to dense's right answers over wrong ones


def difference(first: Sample, second: Sample, share: bool) -> Effect:
    """Return the difference of two samples of the same items by seed; of a `share` with its interval on logits."""
    contrast = Sample(first.values - second.values, first.weights, first.clusters).contrast()
    if not share or not first.values.size:
        return contrast
    return of_shares(first.by_seed, second.by_seed, first.count, contrast.item_se)


def levels(dense: ArmItems, task: str, seen: bool = False) -> list[Level]:
    """Return where dense stands in accuracy on a task or group, with its floor; nothing where there are no items."""
    sample = dense.whole().sample("accuracy", task, seen)
    if not sample.values.size:
        return []
    return [Level(sample.by_seed, sample.count, *dense.floor(task, seen))]


def contrast(high: ArmItems, low: ArmItems, score: str, task: str, seen: bool = False) -> Effect:
    """Return score(high) - score(low) by seed, over the seeds that both have, paired item by item, with their error."""
    count = min(len(high.whole().seeds), len(low.whole().seeds))
    same = np.array_equal(high.seeds[:count], low.seeds[:count])
    whole = [arm.sample(score, task, seen) for arm in (high, low)]
    first, second = (Sample(one.values[:count], one.weights[:count], one.clusters) for one in whole)
    if not (same and np.array_equal(first.clusters, second.clusters) and np.array_equal(first.weights, second.weights)):
        raise UserError(f"{high} and {low} were scored on different seeds or items")
    return difference(first, second, score == "accuracy")


def no_knowledge(dense: ArmItems, score: str, task: str, seen: bool = False) -> str | None:
    """Return why dense doesn't know a task or group, or None; Unmeasured where it diverged.

    Dense must not be shown to score less than 2 points above its floor; or, for margins, its prompts to add less than
    0.05 bits to right answers over wrong ones.
    """
    sample = dense.whole().sample(score, task, seen)
    if np.isnan(sample.by_seed).any():
        return "no item's fact was seen in training"
    if score == "accuracy":
        return levels(dense, task, seen)[0].at_floor()
    low, high = sample.contrast().interval(0.05)
    if high < MARGIN_LEAD:
        bits = f"{low:.3f} to {high:.3f} bits (95%)"
        return f"dense's prompts add {bits} to right answers over wrong ones; {MARGIN_LEAD:g} are needed"
    return None
