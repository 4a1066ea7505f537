"""Reads losses by distance and position, and items of reasoning tasks.

A metric of items is "score:what" or "score:what:low-high": `what` is a task or group of lm-eval's that the recipe names, or a group of
these; low-high keeps items of so many words ("8000-" of so many or more).
"""

from functools import cached_property
from pathlib import Path

import numpy as np

from stemrepro.files import damaged
from stemrepro.recipe import Recipe
from stemrepro.scores.context import EDGES, Part
from stemrepro.scores.items import Sample
from stemrepro.scores.knowledge import ArmScores
from stemrepro.scores.reading import SEEDS, Array, read_npz

DISTANCE = {
    "seeds": SEEDS,
    "source": Array("labels", "documents"),
    "distance_tokens": Array("whole numbers", "documents distances"),
    "distance": Array("numbers", "seeds documents distances"),
    "position_tokens": Array("whole numbers", "documents positions"),
    "position": Array("numbers", "seeds documents positions"),
    "word_tokens": Array("whole numbers", "vocabulary kinds"),
    "word": Array("numbers", "seeds vocabulary kinds"),
}
TASK = {
    "value": Array("numbers", "seeds items", most=100),
    "length": Array("whole numbers", "items"),
    "floor": Array("numbers", "items", most=100),
    "cut": Array("yes or no", "items"),
    "clusters": Array("labels", "items"),
}
"""What reasoning.npz has of each task."""


class ArmDistance(ArmScores):
    """Losses of an arm by how far back targets stood last, and by position."""

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """distance.npz as stemrepro.evaluation.distance writes it."""
        path = self.whole().folder / "distance.npz"
        arrays = read_npz(path, DISTANCE, seeds=self.summary["seeds"], kinds=3)
        for name in ("distance_tokens", "position_tokens"):
            if arrays[name].shape[1] > len(EDGES):
                raise damaged(path, f"'{name}' has {arrays[name].shape[1]} buckets; at most {len(EDGES)} can be")
        return arrays

    def part(self, by: str, low: int, high: int = 2**30) -> Part:
        """Sums over buckets from `low` up to `high` of `by`, "distance" or "position"."""
        tokens = self.arrays[f"{by}_tokens"]
        edges = np.array(EDGES[: tokens.shape[1]])
        chosen = (edges >= low) & (edges < high)
        return Part(self.arrays[by][:, :, chosen].sum(axis=2).astype(float), tokens[:, chosen].sum(axis=1))


class ArmReasoning(ArmScores):
    """Items of an arm; none where the scale asks for none."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        super().__init__(folder)
        self.recipe = recipe

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """reasoning.npz as stemrepro.evaluation.reasoning writes it."""
        path, tasks = self.whole().folder / "reasoning.npz", self.summary["tasks"]
        seeds = self.summary["seeds"]
        arrays = read_npz(path, {"seeds": SEEDS}, seeds=seeds)
        for task, about in tasks.items():
            wanted = {f"{task}/{field}": array for field, array in TASK.items()}
            arrays |= read_npz(path, wanted, seeds=seeds, items=about["items"])
        return arrays

    def tasks(self, metric: str) -> list[str]:
        """The tasks of a metric, as far as the scale has them."""
        what = metric.split(":")[1]
        return [task for task in self.recipe.groups.get(what, (what,)) if task in self.summary["tasks"]]

    def sample(self, metric: str, field: str = "value") -> Sample:
        """Values (points), weights and clusters of a metric's items; every task of a group counts the same.

        Args:
            field: "value", "floor" for what needs no knowledge, or "cut" for the share of prompts that are longer than the context.
        """
        low, _, high = [*metric.split(":"), "-"][2].partition("-")
        values, weights, clusters = [], [], []
        for task in self.tasks(metric):
            own = self.arrays[f"{task}/value"]
            value = own if field == "value" else np.broadcast_to(self.arrays[f"{task}/{field}"], own.shape)
            length = self.arrays[f"{task}/length"]
            kept = (length >= int(low or 0)) & (length < int(high or 2**30))
            if kept.any():
                values.append(value[:, kept].astype(float))
                weights.append(np.full(values[-1].shape, 1 / kept.sum()))
                clusters.append(self.arrays[f"{task}/clusters"][kept])
        if not values:
            return Sample(np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
        return Sample(
            np.concatenate(values, axis=1), np.concatenate(weights, axis=1) / len(values), np.concatenate(clusters)
        )
