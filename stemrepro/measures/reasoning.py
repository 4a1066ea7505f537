"""Reasoning in context: metrics of recipes/contextual_reasoning.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.base import Level, condition, on_scale
from stemrepro.measures.context import mean_difference, sums
from stemrepro.measures.items import Sample
from stemrepro.measures.items import difference as item_difference
from stemrepro.measures.metric import TaskName, VariantName
from stemrepro.measures.reading import ArmTasks, arm_table, array
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, Untested
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd

GROWTHS = {"repeat": (0, (1, 2)), "far": (1, (2,))}
"""Kinds of targets (0 new, 1 near, 2 far) whose leads a growth compares: the first with all of the others."""
MOST_CUT = 0.05
"""Share of prompts longer than the context up to which a task is judged."""
LONGEST = 2**30
"""More than any item's length."""


class ArmReasoning(ArmTasks):
    """Items of an arm; none where the scale requests none."""

    kind = "reasoning"

    def sample(self, what: str, least: int = 0, below: int = LONGEST, field: str = "value") -> Sample:
        """Return values (points), weights and clusters of the items of a task or group, whose tasks count the same.

        Args:
            least, below: range of the items' lengths.
            field: "value", "floor" for what needs no knowledge, or "cut": the share of prompts beyond the context.

        Raises:
            Untested: there are none.
        """
        if not self.whole().tasks(what):
            raise Untested("these items are the hub's, and this scale asks for none: its models couldn't answer them")
        values, weights, clusters = [], [], []
        for task in self.tasks(what):
            length = self.by_item(task, "length")[0]
            kept = (length >= least) & (length < below)
            if kept.any():
                values.append(self.by_item(task, field)[:, kept].astype(float))
                weights.append(np.full(values[-1].shape, 1 / kept.sum()))
                clusters.append(self.by_item(task, "cluster")[0, kept])
        if not values:
            raise Untested("no item is of that length")
        every, weight = np.concatenate(values, axis=1), np.concatenate(weights, axis=1) / len(values)
        return Sample(every, weight, np.concatenate(clusters))


@kept
def arm_reasoning(scores: Scores, arm: str, at: str = MAIN) -> ArmReasoning:
    """Return an arm's items at a variant."""
    return ArmReasoning(scores.folder, Address(at, arm), scores.recipe)


def _score_levels(scores: Scores, task: str, least: int = 0, below: int = LONGEST, at: str = MAIN) -> list[Level]:
    dense = arm_reasoning(scores, "dense", at)
    sample = dense.sample(task, least, below)
    return [Level(sample.by_seed, sample.count, float(dense.sample(task, least, below, "floor").by_seed.mean()))]


@on_scale(_score_levels)
def score(
    scores: Scores, high: str, low: str, task: TaskName, least: int = 0, below: int = LONGEST, at: VariantName = MAIN
) -> Effect:
    """Points of a task or group, of items of so many words; after an extension at a variant.

    Args:
        least, below: the fewest words, and more than the most.
    """
    one, other = (arm_reasoning(scores, arm, at).sample(task, least, below) for arm in (high, low))
    if not (np.array_equal(one.clusters, other.clusters) and one.values.shape == other.values.shape):
        raise UserError(f"{high} and {low} were scored on different seeds or items of '{task}'")
    return item_difference(one, other, share=True)


@condition(TOO_SMALL, ("dense",))
def prompts_fit(scores: Scores, task: str, least: int = 0, below: int = LONGEST, at: str = MAIN) -> str | None:
    """No more than 5% of the prompts are longer than the models' context."""
    cut = float(arm_reasoning(scores, "dense", at).sample(task, least, below, "cut").by_seed.mean())
    if cut > MOST_CUT:
        return f"{cut:.0%} of the prompts are longer than the models' context and would lose their beginning"
    return None


def by_distance(scores: Scores, arm: str, by: str) -> pd.DataFrame:
    """Return an arm's lines by "distance" to the last occurrence, or by "position"."""
    rows = arm_table(scores, "distance", arm)
    return rows[rows["by"] == by]


def loss(
    scores: Scores, high: str, low: str, by: Literal["distance", "position"], least: int = 0, below: int = LONGEST
) -> Effect:
    """Loss on the targets in a range of distances to their last occurrence, or of positions."""
    return mean_difference(*(sums(arm, by_distance(scores, arm, by), least, below) for arm in (high, low)))


def growth(scores: Scores, high: str, low: str, of: Literal["repeat", "far"]) -> Effect:
    """A difference of losses on words that stood in the sequence before less that on the same words new in it.

    It is the mean over words of a difference of their two means, with the error between words. The weight of a word is
    n1 n2 / (n1 + n2), by which its two means are known.

    Args:
        of: "repeat"; or "far": on words that stood last 16 or more tokens back less that on the same words nearer by.
    """
    first, others = GROWTHS[of]
    one, other = (arm_table(scores, "words", arm) for arm in (high, low))
    if not one.drop(columns="nats").equals(other.drop(columns="nats")):
        raise UserError(f"{high} and {low} were scored on different seeds or targets; score them anew")
    lead = array(one.assign(nats=one["nats"].astype(float) - other["nats"]), "nats", "seed", "token", "at")
    count, kinds = array(one, "tokens", "seed", "token", "at")[0], list(others)
    first_count, rest_count = count[:, first], count[:, kinds].sum(axis=1)
    both = (first_count > 0) & (rest_count > 0)
    values = lead[:, :, kinds].sum(axis=2)[:, both] / rest_count[both] - lead[:, both, first] / first_count[both]
    weights = first_count[both] * rest_count[both] / (first_count[both] + rest_count[both])
    return Sample(values, np.tile(weights / weights.sum(), (len(values), 1)), np.flatnonzero(both)).contrast()
