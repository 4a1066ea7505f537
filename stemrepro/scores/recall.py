"""Reads what an arm recalls of its context."""

from functools import cached_property

import pandas as pd

from stemrepro.errors import UserError
from stemrepro.files import damaged
from stemrepro.scores.knowledge import ArmScores
from stemrepro.scores.reading import read_csv


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
