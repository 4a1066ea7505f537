"""The benchmark items of an arm that `stemrepro evaluate` wrote, and paired differences of arms, item by item.

A metric is "score:what" or "score:what:seen". `score` is "accuracy" (points; under each task's own acc or acc_norm) or
"margin" (bits). `what` is a task or a group of the recipe, whose tasks all count the same. ":seen" keeps, for each seed,
the items whose fact stood in what that seed was trained on (all of them count the same).
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.recipe import Recipe
from stemrepro.measures.reading import SEEDS, ArmScores, Array, read_npz, read_summary
from stemrepro.verdicts.contrast import Contrast

TASK = dict.fromkeys(("acc", "acc_norm", "answer_acc", "answer_acc_norm"), Array("yes or no", "seeds items")) | {
    "margin": Array("numbers", "seeds items", least=None),
    "seen": Array("whole numbers", "seeds items"),
    "clusters": Array("labels", "items"),
}
"""What items.npz has of each task."""


@dataclass(frozen=True)
class Sample:
    """Item values of one arm: values and weights [seeds, items] (weights of a seed sum to 1), clusters [items]."""

    values: np.ndarray
    weights: np.ndarray
    clusters: np.ndarray

    def of_seeds(self, count: int) -> "Sample":
        """Return the same of the first so many seeds."""
        return Sample(self.values[:count], self.weights[:count], self.clusters)

    @property
    def by_seed(self) -> np.ndarray:
        """Weighted mean of each seed [seeds]; nan where nothing was measured."""
        return (self.values * self.weights).sum(axis=1) if self.values.size else np.full(len(self.values), np.nan)

    def contrast(self) -> Contrast:
        """Means of the seeds with the error between clusters of items (linearised, as for a survey's clusters)."""
        if not self.values.size:
            return Contrast(self.by_seed)
        influence = (self.weights * (self.values - self.by_seed[:, None])).mean(axis=0)
        _, member = np.unique(self.clusters, return_inverse=True)
        sums = np.bincount(member, weights=influence)
        groups = int((np.bincount(member, weights=self.weights.sum(axis=0)) > 0).sum())
        if groups < 2:
            return Contrast(self.by_seed)
        return Contrast(self.by_seed, float(np.sqrt(groups / (groups - 1) * (sums**2).sum())), groups - 1)


class ArmItems(ArmScores):
    """Benchmark scores of one arm: what `stemrepro evaluate --part benchmarks` wrote.

    Raises:
        UserError: a file is missing or unreadable.
    """

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        super().__init__(folder)
        self.recipe = recipe

    @cached_property
    def summary(self) -> dict:
        """Means over seeds by task, and hashes."""
        return read_summary(self.folder / "summary.json", "tasks")

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """items.npz as stemrepro.evaluation.benchmarks writes it."""
        path, tasks = self.folder / "items.npz", self.summary["tasks"]
        seeds = self.summary["seeds"] - len(self.summary.get("diverged", {}))
        arrays = read_npz(path, {"seeds": SEEDS}, seeds=seeds)
        for task, about in tasks.items():
            wanted = {f"{task}/{field}": array for field, array in TASK.items()}
            arrays |= read_npz(path, wanted, seeds=seeds, items=about["items"])
        return arrays

    def tasks(self, what: str) -> list[str]:
        """Return the tasks of a group, or the task itself, as far as this scale has them."""
        return [task for task in self.recipe.groups.get(what, (what,)) if task in self.summary["tasks"]]

    def sample(self, metric: str, alone: bool = False) -> Sample:
        """Return values, weights and clusters for a metric; with `alone` of the answers without their prompt."""
        score, what, *rest = metric.split(":")
        if score not in ("accuracy", "margin") or rest not in ([], ["seen"]):
            raise UserError(
                f"metric '{metric}': it must be accuracy or margin, ':', a task or group, and ':seen' or nothing"
            )
        values, weights, clusters = [], [], []
        for task in self.tasks(what):
            field = "margin" if score == "margin" else ("answer_" if alone else "") + self.recipe.tasks[task].score
            value = self.arrays[f"{task}/{field}"].astype(float) * (100 if score == "accuracy" else 1)
            seen = self.arrays[f"{task}/seen"] > 0
            weights.append(seen.astype(float) if rest else np.full(value.shape, 1 / value.shape[1]))
            values.append(value)
            clusters.append(self.arrays[f"{task}/clusters"])
        seeds = len(self.arrays["seeds"])
        total = np.concatenate(weights, axis=1).sum(axis=1, keepdims=True) if weights else np.zeros((seeds, 1))
        if not (total > 0).all():
            return Sample(np.empty((seeds, 0)), np.empty((seeds, 0)), np.empty(0))
        return Sample(np.concatenate(values, axis=1), np.concatenate(weights, axis=1) / total, np.concatenate(clusters))

    def floors(self, metric: str) -> dict[str, float]:
        """Accuracies on a metric's items that need no knowledge, in points."""
        tasks = [self.summary["tasks"][task] for task in self.tasks(metric.split(":")[1])]
        chance, frequent = (100 * float(np.mean([task[name] for task in tasks])) for name in ("chance", "majority"))
        alone = float(self.sample(metric, alone=True).by_seed.mean())
        return {"chance": chance, "the most frequent answer": frequent, "answers alone": alone}

    def floor(self, metric: str) -> tuple[float, str]:
        """Return the best of the floors and what it is; of a group the mean over its tasks. The items that were seen are few in a
        task, so these count as one task.
        """
        tasks = self.tasks(metric.split(":")[1])
        metrics = [metric] if metric.endswith(":seen") else [f"accuracy:{task}" for task in tasks]
        floors = [self.floors(metric) for metric in metrics]
        what = max(floors[0], key=floors[0].get) if len(floors) == 1 else "what needs no knowledge"
        return float(np.mean([max(floor.values()) for floor in floors])), what


SCORES = ("accuracy", "margin")
METRICS = {
    r"accuracy:[a-z0-9_]+(:seen)?": "accuracy in points of a task or group, each task under its own acc or acc_norm",
    r"margin:[a-z0-9_]+(:seen)?": "bits that the prompt adds to the right answer over the wrong ones",
}
ACCURACY_LEAD = 2.0  # points by which dense must beat chance, majority and the answers alone
MARGIN_LEAD = 0.05  # bits that the prompt must add to dense's right answers over wrong ones


def contrast(high: ArmItems, low: ArmItems, metric: str) -> Contrast:
    """metric(high) - metric(low) by seed, over the seeds that both have, item by item, with the error between items.

    Raises:
        UserError: these are not the same, or the items aren't.
        Unmeasured: a run diverged.
    """
    count = min(len(high.whole().arrays["seeds"]), len(low.whole().arrays["seeds"]))
    same = np.array_equal(high.arrays["seeds"][:count], low.arrays["seeds"][:count])
    first, second = high.sample(metric).of_seeds(count), low.sample(metric).of_seeds(count)
    if not (same and np.array_equal(first.clusters, second.clusters) and np.array_equal(first.weights, second.weights)):
        raise UserError(f"{high.folder} and {low.folder} were scored on different seeds or items")
    return Sample(first.values - second.values, first.weights, first.clusters).contrast()


def untestable(dense: ArmItems, metric: str) -> str | None:
    """Return why a metric can't be tested at this scale, or None; judged by the dense arm alone.

    Dense must score 2 points above chance, the most frequent answer and the answers without their prompt (in a group, above the mean of
    each task's best of these); for margins, its prompts must add 0.05 bits to right answers over wrong ones. Unmeasured where it diverged.
    """
    if not dense.whole().tasks(metric.split(":")[1]):
        return "this scale has no items of it"
    score = float(dense.sample(metric).by_seed.mean())
    if np.isnan(score):
        return "no item's fact was seen in training"
    if metric.startswith("margin"):
        if score < MARGIN_LEAD:
            return f"dense's prompts add {score:.3f} bits to right answers over wrong ones; {MARGIN_LEAD:g} are needed"
        return None
    floor, what = dense.floor(metric)
    if score < floor + ACCURACY_LEAD:
        return f"dense scores {score:.1f}, less than {ACCURACY_LEAD:g} points above the {floor:.1f} of {what}"
    return None
