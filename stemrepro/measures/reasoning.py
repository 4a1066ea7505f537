"""Reasoning in context: metrics of recipes/contextual_reasoning.yaml."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stemrepro.claims import TOO_SMALL, Contrast
from stemrepro.config.address import MAIN, Address
from stemrepro.errors import UserError
from stemrepro.measures.base import Inputs, Precondition
from stemrepro.measures.context import mean_difference
from stemrepro.scores.items import Sample
from stemrepro.scores.reasoning import ArmDistance, ArmReasoning

SCORE = r"score:[a-z0-9_.-]+(:[0-9]+-[0-9]*)?(@.+)?"
SCORE_WORDS = "points of a task or group, of items of so many words; behind an extension at a point"
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

    def items(self, arm: str, point: str = MAIN) -> ArmReasoning:
        """Items of an arm."""
        return ArmReasoning(self.inputs.folder / "reasoning" / Address(point, arm).path, self.inputs.recipe)

    def check_same(self, high: str, low: str) -> None:
        """Raises UserError where two arms were scored on different seeds or targets."""
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
        means, weighted by how well both are known, n1 n2 / (n1 + n2); with the error between words."""
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
        """A difference of two arms by seed."""
        if metric.startswith("growth:"):
            return self.same_words(high, low, *GROWTHS[metric.partition(":")[2]])
        metric, _, point = metric.partition("@")
        one, other = (self.items(arm, point or MAIN).sample(metric) for arm in (high, low))
        if not one.values.size:
            return Contrast(np.array([np.nan]))
        if not (np.array_equal(one.clusters, other.clusters) and one.values.shape == other.values.shape):
            raise UserError(f"{high} and {low} were scored on different seeds or items of '{metric}'")
        return Sample(one.values - other.values, one.weights, one.clusters).contrast()

    def elsewhere(self, high: str, low: str, metric: str) -> dict[str, Contrast]:
        """Scored at the common rate alone."""
        return {}

    def value(self, metric: str) -> float:
        """No metric of arms is exact."""
        raise UserError(f"metric '{metric}' is a contrast of arms, not a number by itself")

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Whether there are items, and dense answers them."""
        if not metric.startswith("score:"):
            return None
        metric, _, point = metric.partition("@")
        dense = self.items("dense", point or MAIN)
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
        """The arms."""
        return self.arms
