"""Reads losses by distance and position, and items of reasoning tasks.

A metric of items is "score:what" or "score:what:low-high": `what` is a task or group of lm-eval's that the recipe names, or a group of
these; low-high keeps items of so many words ("8000-" of so many or more).
"""

from functools import cached_property
from pathlib import Path

import numpy as np

from stemrepro.evaluation.buckets import position_edges
from stemrepro.files import damaged
from stemrepro.recipe import Recipe
from stemrepro.scores.context import Part
from stemrepro.scores.items import Sample
from stemrepro.scores.knowledge import ArmScores
from stemrepro.scores.reading import check_finite, read_npz


class ArmDistance(ArmScores):
    """Losses of an arm by how far back targets stood last, and by position."""

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """distance.npz as stemrepro.evaluation.distance writes it."""
        path = self.whole().folder / "distance.npz"
        arrays = read_npz(
            path, "seeds", "source", "distance", "distance_tokens", "position", "position_tokens", "word", "word_tokens"
        )
        for name in ("distance", "position", "word"):
            check_finite(path, name, arrays[name])
            if arrays[name].shape != (self.summary["seeds"], *arrays[f"{name}_tokens"].shape):
                raise damaged(
                    path, f"of '{name}' seeds or documents are missing; summary.json has {self.summary['seeds']} seeds"
                )
        return arrays

    def part(self, by: str, low: int, high: int = 2**30) -> Part:
        """Sums over buckets from `low` up to `high` of `by`, "distance" or "position"."""
        tokens = self.arrays[f"{by}_tokens"]
        edges = np.array(position_edges(2**30)[: tokens.shape[1]])
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
        arrays = read_npz(
            path,
            "seeds",
            *(f"{task}/{field}" for task in tasks for field in ("value", "length", "floor", "cut", "clusters")),
        )
        for task, about in tasks.items():
            check_finite(path, f"{task}/value", arrays[f"{task}/value"])
            if arrays[f"{task}/value"].shape != (self.summary["seeds"], about["items"]):
                raise damaged(
                    path,
                    f"of '{task}' seeds or items are missing; summary.json has {self.summary['seeds']} x {about['items']}",
                )
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
