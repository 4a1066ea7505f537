"""Recall in context: metrics of recipes/associative_recall.yaml. Accuracies are in points; the same documents for every arm and seed."""

from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.base import Precondition
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.reading import ArmScores, read_csv
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.rule import TOO_SMALL


class ArmRecall(ArmScores):
    """How often an arm says the right value behind a key, by seed, number of pairs and length."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A line a seed, number of pairs and length: queries, right, first_queries, first_right."""
        path = self.whole().folder / "recall.csv"
        frame = read_csv(path, "seed", "pairs", "length", "queries", "right", "first_queries", "first_right")
        if frame["seed"].nunique() != self.summary["seeds"]:
            raise damaged(path, f"seeds are missing; summary.json has {self.summary['seeds']}")
        return frame

    def accuracy(self, pairs: int, length: int, first: bool = False) -> pd.Series:
        """Points of right values by seed; `first`: the first time that a key is asked for."""
        own = self.frame[(self.frame["pairs"] == pairs) & (self.frame["length"] == length)].set_index("seed")
        if own.empty:
            raise UserError(f"{self.folder}/recall.csv has no documents of {pairs} pairs and {length} tokens")
        return 100 * (own["first_right"] / own["first_queries"] if first else own["right"] / own["queries"])


SOLVED = 90.0
"""Points that dense must reach with the fewest pairs at the trained length: below them there is no recall to change."""


class Recall:
    """What the recipe's arms recall."""

    metrics: ClassVar[dict[str, str]] = {
        "recalled": "points of right values at the trained length, mean over numbers of pairs, difference of two arms",
        "recalled:[0-9]+": "the same with so many pairs",
        "first:[0-9]+": "the same of the first time that a key is asked for",
        "longer": "the same as recalled at the longest documents, longer than those trained on",
        "pairs-slope": "how an arm's lead over the other changes with each doubling of the number of pairs, points",
    }
    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-recalls": Precondition(
            f"dense says {SOLVED:g}% of the values right with the fewest pairs", TOO_SMALL, ("dense",)
        )
    }
    reads_text: ClassVar[bool] = False

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    @cached_property
    def arms(self) -> dict[str, ArmRecall]:
        """The recipe's arms."""
        return {
            arm: ArmRecall(self.inputs.folder / "recall" / Address(MAIN, arm).path) for arm in self.inputs.recipe.arms
        }

    @property
    def trained(self) -> int:
        """Tokens of a training document."""
        return self.inputs.scale.model.sequence

    @property
    def longest(self) -> int:
        """Tokens of the longest documents that are asked about."""
        return max(self.inputs.scale.recall.lengths)

    def pairs(self, length: int) -> list[int]:
        """Numbers of pairs that fit a length."""
        return [pairs for pairs in self.inputs.scale.recall.pairs if 4 * pairs <= length]

    def accuracy(self, arm: str, pairs: int, length: int, first: bool = False) -> np.ndarray:
        """Points of an arm by seed."""
        return self.arms[arm].accuracy(pairs, length, first).to_numpy()

    def mean(self, arm: str, length: int) -> np.ndarray:
        """Return mean over the numbers of pairs that training has, by seed."""
        return np.mean([self.accuracy(arm, pairs, length) for pairs in self.pairs(self.trained)], axis=0)

    def contrast(self, high: str, low: str, metric: str) -> Contrast:
        """Return a difference of two arms by seed, over the seeds that both have."""
        name, _, pairs = metric.partition(":")
        count = min(len(self.arms[arm].frame["seed"].unique()) for arm in (high, low))
        if pairs:
            one, other = (self.accuracy(arm, int(pairs), self.trained, name == "first") for arm in (high, low))
        elif name == "pairs-slope":
            steps = self.pairs(self.trained)
            leads = np.stack(
                [
                    self.accuracy(high, p, self.trained)[:count] - self.accuracy(low, p, self.trained)[:count]
                    for p in steps
                ]
            )
            return Contrast(np.polyfit(np.log2(steps), leads, 1)[0])
        else:
            one, other = (self.mean(arm, self.longest if name == "longer" else self.trained) for arm in (high, low))
        return Contrast(one[:count] - other[:count])

    def robustness(self, high: str, low: str, metric: str) -> dict[str, Contrast]:
        """Recall is asked for at the common rate alone."""
        return {}

    def value(self, metric: str) -> float:
        """No metric of arms is exact."""
        raise UserError(f"metric '{metric}' is a contrast of arms, not a number by itself")

    def untestable(self, metric: str, precondition: str) -> str | None:
        """Return whether dense recalls at all."""
        if precondition == "dense-recalls":
            fewest = min(self.pairs(self.trained))
            if (found := float(self.accuracy("dense", fewest, self.trained).mean())) < SOLVED:
                return f"dense says {found:.0f}% of the values right with {fewest} pairs; {SOLVED:g} are needed"
        return None

    def runs(self) -> dict[str, ArmRecall]:
        """Return the arms."""
        return self.arms
