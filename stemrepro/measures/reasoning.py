"""Reasoning in context: metrics of recipes/contextual_reasoning.yaml."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Recipe
from stemrepro.measures.base import LEAD, Level, Measure, Precondition
from stemrepro.measures.context import EDGES, Part, mean_difference
from stemrepro.measures.items import Sample
from stemrepro.measures.items import difference as item_difference
from stemrepro.measures.metric import Field, Like, metric
from stemrepro.measures.reading import ArmScores, ArmTasks, check_same, read_npz
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import TOO_SMALL

DISTANCE = ("source", "distance_tokens", "distance", "position_tokens", "position", "word_tokens", "word")
SAME = ("seeds", "distance_tokens", "position_tokens", "word_tokens")
TASK = ("value", "length", "floor", "cut", "clusters")
"""Arrays of reasoning.npz for each task."""
Words = tuple[int, int]
"""Range of lengths of items: the first, and the one after the last."""


class ArmDistance(ArmScores):
    """Losses of an arm by the distance to a target's last occurrence, and by position."""

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """distance.npz as stemrepro.evaluation.distance writes it."""
        path = self.whole().folder / "distance.npz"
        return read_npz(path, "seeds", *DISTANCE, seeds=self.summary["seeds"])

    def part(self, by: str, low: int, high: int = 2**30) -> Part:
        """Return sums over buckets from `low` up to `high` of `by`, "distance" or "position"."""
        tokens = self.arrays[f"{by}_tokens"]
        edges = np.array(EDGES[: tokens.shape[1]])
        chosen = (edges >= low) & (edges < high)
        return Part(self.arrays[by][:, :, chosen].sum(axis=2).astype(float), tokens[:, chosen].sum(axis=1))


class ArmReasoning(ArmTasks):
    """Items of an arm; none where the scale requests none."""

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """reasoning.npz as stemrepro.evaluation.reasoning writes it."""
        return self.whole().read_items("reasoning.npz", TASK)

    def sample(self, what: str, words: Words | None = None, field: str = "value") -> Sample:
        """Return values (points), weights and clusters of the items of a task or group, whose tasks count the same.

        Args:
            words: range of the items' lengths; None for all items.
            field: "value", "floor" for what needs no knowledge, or "cut": the share of prompts beyond the context.
        """
        low, high = words or (0, 2**30)
        values, weights, clusters = [], [], []
        for task in self.tasks(what):
            points = self.arrays[f"{task}/value"]
            value = points if field == "value" else np.broadcast_to(self.arrays[f"{task}/{field}"], points.shape)
            length = self.arrays[f"{task}/length"]
            kept = (length >= low) & (length < high)
            if kept.any():
                values.append(value[:, kept].astype(float))
                weights.append(np.full(values[-1].shape, 1 / kept.sum()))
                clusters.append(self.arrays[f"{task}/clusters"][kept])
        if not values:
            return Sample(np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
        return Sample(
            np.concatenate(values, axis=1), np.concatenate(weights, axis=1) / len(values), np.concatenate(clusters)
        )


GROWTHS = {"repeat": (0, (1, 2)), "far": (1, (2,))}
"""Kinds of targets (0 new, 1 near, 2 far) whose leads a growth compares: the first with all of the others."""
MOST_CUT = 0.05
"""Share of prompts longer than the context up to which a task is judged."""


def _scored_variants(catalog: Catalog, recipe: Recipe) -> tuple[str, ...]:
    return tuple(variant for variant, request in recipe.variants.items() if "reasoning" in request.scores)


def _words(word: str) -> Words:
    low, _, high = word.partition("-")
    if "-" not in word:
        raise ValueError(f"{word!r} is no range")
    return int(low), int(high) if high else 2**30


class Scored(Measure):
    """Scores of lm-eval's tasks."""

    fields: ClassVar[dict[str, Field]] = {"words": Like(_words, "4000-8000 or 8000-"), "variant": _scored_variants}
    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-answers": Precondition(
            f"dense scores {LEAD:g} points above the most frequent answer and a draw among the choices",
            TOO_SMALL, ("dense",),
        )
    }  # fmt: skip

    def items(self, arm: str, variant: str = MAIN) -> ArmReasoning:
        return ArmReasoning(self.inputs.scores("reasoning", arm, variant), self.inputs.recipe)

    @metric(
        "score:{task}[:{words}][@{variant}]",
        "points of a task or group, of items of so many words; after an extension at a variant",
    )
    def score(self, high: str, low: str, task: str, words: Words | None = None, variant: str = MAIN) -> Contrast:
        one, other = (self.items(arm, variant).sample(task, words) for arm in (high, low))
        if not one.values.size:
            return Contrast(np.array([np.nan]))
        if not (np.array_equal(one.clusters, other.clusters) and one.values.shape == other.values.shape):
            raise UserError(f"{high} and {low} were scored on different seeds or items of '{task}'")
        return item_difference(one, other, share=True)

    def levels(self, metric: str) -> list[Level]:
        fields = self.parse(metric).fields
        if "task" not in fields:
            return []
        dense, task, words = self.items("dense", fields.get("variant", MAIN)), fields["task"], fields.get("words")
        sample = dense.whole().sample(task, words)
        if not sample.values.size:
            return []
        floor = float(dense.sample(task, words, "floor").by_seed.mean())
        return [Level(sample.by_seed, sample.count, floor)]

    def untestable(self, metric: str, precondition: str) -> str | None:
        fields = self.parse(metric).fields
        if "task" not in fields:
            return None
        dense, task, words = self.items("dense", fields.get("variant", MAIN)), fields["task"], fields.get("words")
        if not dense.whole().tasks(task):
            return "these items are the hub's, and this scale asks for none: its models couldn't answer them"
        if not dense.sample(task, words).values.size:
            return "no item is of that length"
        if precondition == "none":
            return None
        if (cut := float(dense.sample(task, words, "cut").by_seed.mean())) > MOST_CUT:
            return f"{cut:.0%} of the prompts are longer than the models' context and would lose their beginning"
        return self.levels(metric)[0].at_floor()


class Reasoning(Scored):
    """Scores of lm-eval's tasks, and losses by the distance to a target's last occurrence."""

    @cached_property
    def arms(self) -> dict[str, ArmDistance]:
        return {arm: ArmDistance(self.inputs.scores("distance", arm)) for arm in self.inputs.recipe.arms}

    def difference(self, high: str, low: str, by: str, where: tuple[int, int]) -> Contrast:
        """Return loss(high) - loss(low) on the targets in a range of distances or positions."""
        check_same(self.arms[high], self.arms[low], *SAME)
        first, second = (self.arms[arm].part(by, *where) for arm in (high, low))
        return mean_difference(first, second, None, None, self.arms[high].arrays["source"])

    @metric(
        "growth:{growth=repeat}",
        "a difference of losses on words that occurred in the sequence before less that on the same words where they "
        "are new, nats per token of prose",
    )
    @metric(
        "growth:{growth=far}",
        "the same on words that occurred last 16 or more tokens back less that on the same words nearer by",
    )
    def same_words(self, high: str, low: str, growth: str) -> Contrast:
        """Return, by seed, the mean over words of a difference of its two means, with the error between words.

        The weight of a word is n1 n2 / (n1 + n2), by which its two means are known.
        """
        first, others = GROWTHS[growth]
        one, other = self.arms[high].arrays, self.arms[low].arrays
        check_same(self.arms[high], self.arms[low], *SAME)
        lead, count = one["word"].astype(float) - other["word"], one["word_tokens"]
        kinds = list(others)
        first_count, other_count = count[:, first], count[:, kinds].sum(axis=1)
        both = (first_count > 0) & (other_count > 0)
        values = lead[:, :, kinds].sum(axis=2)[:, both] / other_count[both] - lead[:, both, first] / first_count[both]
        weights = first_count[both] * other_count[both] / (first_count[both] + other_count[both])
        return Sample(values, np.tile(weights / weights.sum(), (len(values), 1)), np.flatnonzero(both)).contrast()
