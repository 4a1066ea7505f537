"""Reasoning in context: metrics of recipes/contextual_reasoning.yaml."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stemrepro.claims import Contrast
from stemrepro.errors import UserError
from stemrepro.measures.base import Inputs, Precondition
from stemrepro.measures.context import mean_difference
from stemrepro.runs import MAIN, Address
from stemrepro.scores.context import Part
from stemrepro.scores.items import Sample
from stemrepro.scores.reasoning import ArmDistance, ArmReasoning

LEAD = 2.0
"""Points by which dense must beat what needs no knowledge."""
NEAR = 16
"""Tokens back that count as near."""
GROWTHS = {
    "repeat": ((1, 2**30), (0, 1)),
    "far": ((NEAR, 2**30), (1, NEAR)),
}
"""Distances, from and up to, of the two kinds of targets whose leads a growth compares."""


class Reasoning:
    """Scores of lm-eval's tasks, and losses by how far back targets stood last."""

    metrics: ClassVar[dict[str, str]] = {
        r"score:[a-z0-9_.-]+(:[0-9]+-[0-9]*)?": "points of a task or group, of items of so many words",
        "growth:repeat": "a difference of losses on targets that stood in the context less that on new ones, nats a token of prose",
        "growth:far": f"the same on targets that stood last {NEAR} or more tokens back less that on nearer ones",
    }
    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-answers": Precondition(f"dense scores {LEAD:g} points above the most frequent answer and a draw among the choices", ("dense",))
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

    def items(self, arm: str) -> ArmReasoning:
        """Items of an arm."""
        return ArmReasoning(self.inputs.folder / "reasoning" / Address(MAIN, arm).path, self.inputs.recipe)

    def difference(
        self, high: str, low: str, by: str, where: tuple[int, int], less: tuple[int, int] | None = None
    ) -> Contrast:
        """loss(high) - loss(low) on targets from and up to a distance or position, less that on others.

        Raises:
            UserError: arms scored on different seeds or documents.
        """
        first, second = self.arms[high], self.arms[low]
        for name in ("seeds", "distance_tokens", "position_tokens"):
            if not np.array_equal(first.arrays[name], second.arrays[name]):
                raise UserError(f"{first.folder} and {second.folder} were scored on different seeds or documents")
        parts: list[Part | None] = [arm.part(by, *where) for arm in (first, second)]
        parts += [arm.part(by, *less) if less else None for arm in (first, second)]
        return mean_difference(*parts, first.arrays["source"])

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """A difference of two arms by seed."""
        if metric.startswith("growth:"):
            return self.difference(high, low, "distance", *GROWTHS[metric.partition(":")[2]])
        one, other = (self.items(arm).sample(metric) for arm in (high, low))
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
        dense = self.items("dense")
        sample = dense.sample(metric)
        if not sample.values.size:
            return "these items are the hub's, and this scale asks for none: its models couldn't answer them"
        if precondition == "none":
            return None
        score, floor = (float(dense.sample(metric, field).by_seed.mean()) for field in ("value", "floor"))
        if score < floor + LEAD:
            return (
                f"dense scores {score:.1f}, less than {LEAD:g} points above the {floor:.1f} of what needs no knowledge"
            )
        return None

    def runs(self) -> dict[str, ArmDistance]:
        """The arms."""
        return self.arms
