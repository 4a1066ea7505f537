"""Recall in context: metrics of recipes/associative_recall.yaml.

Accuracies are in points. The documents are the same for every arm and seed.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.measures.base import Level, Measure, Precondition
from stemrepro.measures.metric import metric
from stemrepro.measures.reading import ArmScores
from stemrepro.verdicts.contrast import Contrast, of_shares
from stemrepro.verdicts.rule import TOO_SMALL

if TYPE_CHECKING:
    import pandas as pd


class ArmRecall(ArmScores):
    """How often an arm says the right value after a key, by seed, number of pairs and length."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A line per seed, number of pairs and length: queries, right, first_queries, first_right."""
        by = ("pairs", "length")
        return self.lines("recall.csv", "queries", "right", "first_queries", "first_right", by=by)

    def accuracy(self, pairs: int, length: int, first: bool = False) -> pd.Series:
        """Return points of right values by seed; with `first` those of each key's first query."""
        rows = self.frame[(self.frame["pairs"] == pairs) & (self.frame["length"] == length)].set_index("seed")
        if rows.empty:
            raise UserError(f"{self.folder}/recall.csv has no documents of {pairs} pairs and {length} tokens")
        return 100 * (rows["first_right"] / rows["first_queries"] if first else rows["right"] / rows["queries"])

    def queries(self, pairs: int, length: int, first: bool = False) -> np.ndarray:
        rows = self.frame[(self.frame["pairs"] == pairs) & (self.frame["length"] == length)]
        return rows["first_queries" if first else "queries"].to_numpy(float)


SOLVED = 90.0
"""Points that dense must reach with the fewest pairs at the trained length: below them there is no recall to change."""


class Recall(Measure):
    """Values that the recipe's arms recall."""

    preconditions: ClassVar[dict[str, Precondition]] = {
        "dense-recalls": Precondition(
            f"dense says {SOLVED:g}% of the values right with the fewest pairs", TOO_SMALL, ("dense",)
        )
    }

    @cached_property
    def arms(self) -> dict[str, ArmRecall]:
        return {arm: ArmRecall(self.inputs.scores("recall", arm)) for arm in self.inputs.recipe.arms}

    @property
    def trained(self) -> int:
        return self.inputs.scale.model.sequence

    @property
    def longest(self) -> int:
        return max(self.inputs.scale.recall.lengths)

    def pairs(self, length: int) -> list[int]:
        return [pairs for pairs in self.inputs.scale.recall.pairs if 4 * pairs <= length]

    def accuracy(self, arm: str, pairs: int, length: int, first: bool = False) -> np.ndarray:
        """Return the points of an arm by seed."""
        return self.arms[arm].accuracy(pairs, length, first).to_numpy()

    @metric("recalled", "points of right values at the trained length, mean over numbers of pairs")
    @metric("{what=longer}", "the same as recalled at the longest documents, longer than those trained on")
    @metric("{what=longer-most}", "the same there with the most pairs that training has")
    def recalled(self, high: str, low: str, pairs: int | None = None, what: str | None = None) -> Contrast:
        one, other = (self.level(arm, pairs, what) for arm in (high, low))
        return of_shares(one.percent, other.percent, one.items)

    def level(self, arm: str, pairs: int | None = None, what: str | None = None) -> Level:
        """Return what an arm recalls by seed, with the number of queries; see `recalled`."""
        length = self.longest if what else self.trained
        steps = self.pairs(self.trained) if pairs is None else [pairs]
        steps = steps[-1:] if what == "longer-most" else steps
        queries = np.sum([self.arms["dense"].queries(step, length) for step in steps], axis=0)
        return Level(np.mean([self.accuracy(arm, step, length) for step in steps], axis=0), queries)

    def levels(self, metric: str) -> list[Level]:
        return [] if metric == "pairs-slope" else [self.level("dense", **self.parse(metric).fields)]

    @metric("pairs-slope", "how an arm's lead over the other changes with each doubling of the number of pairs, points")
    def over_pairs(self, high: str, low: str) -> Contrast:
        steps = self.pairs(self.trained)
        leads = [self.recalled(high, low, pairs).differences for pairs in steps]
        return Contrast(np.polyfit(np.log2(steps), np.stack(leads), 1)[0])

    def untestable(self, metric: str, precondition: str) -> str | None:
        if precondition == "dense-recalls":
            fewest = min(self.pairs(self.trained))
            if (level := self.level("dense", fewest)).below(SOLVED):
                return f"dense says {level.words} of the values right with {fewest} pairs; {SOLVED:g} are needed"
        return None
