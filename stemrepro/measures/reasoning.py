"""Reasoning in context: metrics of recipes/contextual_reasoning.yaml.

A metric of items is "score:what" or "score:what:low-high": `what` is a task or group of lm-eval's that the recipe names, or a group of
these; low-high keeps items of so many words ("8000-" of so many or more).
"""

from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.config.recipe import Recipe
from stemrepro.measures.base import Precondition
from stemrepro.measures.context import EDGES, Part, mean_difference
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.items import Sample
from stemrepro.measures.reading import SEEDS, ArmScores, Array, read_npz
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import TOO_SMALL

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
        """Sum over buckets from `low` up to `high` of `by`, "distance" or "position"."""
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
        """Return the tasks of a metric, as far as the scale has them."""
        what = metric.split(":")[1]
        return [task for task in self.recipe.groups.get(what, (what,)) if task in self.summary["tasks"]]

    def sample(self, metric: str, field: str = "value") -> Sample:
        """Return values (points), weights and clusters of a metric's items; every task of a group counts the same.

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


SCORE = r"score:[a-z0-9_.-]+(:[0-9]+-[0-9]*)?(@.+)?"
SCORE_WORDS = "points of a task or group, of items of so many words; behind an extension at a variant"
LEAD = 2.0
"""Points by which dense must beat what needs no knowledge."""
GROWTHS = {"repeat": (0, (1, 2)), "far": (1, (2,))}
"""Kinds of targets (0 new, 1 near, 2 far) whose leads a growth compares: the first with all of the others."""
MOST_CUT = 0.05
"""Share of prompts longer than the context up to which a task is judged."""


class Reasoning:
    """Scores of lm-eval's tasks, and losses by how far back targets stood last."""

    metrics: ClassVar[dict[str, str]] = {
        SCORE: SCORE_WORDS,
        "growth:repeat": "a difference of losses on words that stood in the sequence before less that on the same words where they are new, "
        "nats a token of prose",
        "growth:far": "the same on words that stood last 16 or more tokens back less that on the same words nearer by",
    }
    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-answers": Precondition(f"dense scores {LEAD:g} points above the most frequent answer and a draw among the choices", TOO_SMALL, ("dense",))
    }  # fmt: skip
    reads_text: ClassVar[bool] = False

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @cached_property
    def arms(self) -> dict[str, ArmDistance]:
        """Losses of the recipe's arms."""
        return {
            arm: ArmDistance(self.inputs.folder / "distance" / Address(MAIN, arm).path)
            for arm in self.inputs.recipe.arms
        }

    def items(self, arm: str, variant: str = MAIN) -> ArmReasoning:
        """Items of an arm."""
        return ArmReasoning(self.inputs.folder / "reasoning" / Address(variant, arm).path, self.inputs.recipe)

    def check_same(self, high: str, low: str) -> None:
        """Raise UserError where two arms were scored on different seeds or targets."""
        first, second = self.arms[high], self.arms[low]
        for name in ("seeds", "distance_tokens", "position_tokens", "word_tokens"):
            if not np.array_equal(first.arrays[name], second.arrays[name]):
                raise UserError(f"{first.folder} and {second.folder} were scored on different seeds or documents")

    def difference(self, high: str, low: str, by: str, where: tuple[int, int]) -> Contrast:
        """loss(high) - loss(low) on targets from and up to a distance or position."""
        self.check_same(high, low)
        first, second = (self.arms[arm].part(by, *where) for arm in (high, low))
        return mean_difference(first, second, None, None, self.arms[high].arrays["source"])

    def same_words(self, high: str, low: str, first: int, others: tuple[int, ...]) -> Contrast:
        """loss(high) - loss(low) on other kinds of targets less that on the first kind, word by word: of each word the difference of its two
        means, weighted by how well both are known, n1 n2 / (n1 + n2); with the error between words.
        """
        one, other = self.arms[high].arrays, self.arms[low].arrays
        self.check_same(high, low)
        lead, count = one["word"].astype(float) - other["word"], one["word_tokens"]
        kinds = list(others)
        here, there = count[:, first], count[:, kinds].sum(axis=1)
        both = (here > 0) & (there > 0)
        values = lead[:, :, kinds].sum(axis=2)[:, both] / there[both] - lead[:, both, first] / here[both]
        weights = here[both] * there[both] / (here[both] + there[both])
        return Sample(values, np.tile(weights / weights.sum(), (len(values), 1)), np.flatnonzero(both)).contrast()

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """Return a difference of two arms by seed."""
        if metric.startswith("growth:"):
            return self.same_words(high, low, *GROWTHS[metric.partition(":")[2]])
        metric, _, variant = metric.partition("@")
        one, other = (self.items(arm, variant or MAIN).sample(metric) for arm in (high, low))
        if not one.values.size:
            return Contrast(np.array([np.nan]))
        if not (np.array_equal(one.clusters, other.clusters) and one.values.shape == other.values.shape):
            raise UserError(f"{high} and {low} were scored on different seeds or items of '{metric}'")
        return Sample(one.values - other.values, one.weights, one.clusters).contrast()

    def robustness(self, high: str, low: str, metric: str) -> dict[str, Contrast]:
        """Scored at the common rate alone."""
        return {}

    def value(self, metric: str) -> float:
        """No metric of arms is exact."""
        raise UserError(f"metric '{metric}' is a contrast of arms, not a number by itself")

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Return whether there are items, and dense answers them."""
        if not metric.startswith("score:"):
            return None
        metric, _, variant = metric.partition("@")
        dense = self.items("dense", variant or MAIN)
        if not dense.whole().tasks(metric):
            return "these items are the hub's, and this scale asks for none: its models couldn't answer them"
        if not dense.sample(metric).values.size:
            return "no item is of that length"
        if precondition == "none":
            return None
        score, floor, cut = (float(dense.sample(metric, field).by_seed.mean()) for field in ("value", "floor", "cut"))
        if cut > MOST_CUT:
            return f"{cut:.0%} of the prompts are longer than the models' context and would lose their beginning"
        if score < floor + LEAD:
            return (
                f"dense scores {score:.1f}, less than {LEAD:g} points above the {floor:.1f} of what needs no knowledge"
            )
        return None

    def runs(self) -> dict[str, ArmDistance]:
        """Return the arms."""
        return self.arms
