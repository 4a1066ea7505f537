"""Reads what an arm finds in haystacks."""

from functools import cached_property

import pandas as pd

from stemrepro.errors import UserError
from stemrepro.files import damaged
from stemrepro.scores.knowledge import ArmScores
from stemrepro.scores.reading import read_csv

WAYS = ("chosen", "generated")
"""By log-likelihood among all values, and by greedy generation."""


class ArmHaystack(ArmScores):
    """How many needles an arm finds, by seed, length and depth."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A line a seed, length and depth: rows, chosen, generated, other, nats."""
        path = self.whole().folder / "haystack.csv"
        frame = read_csv(path, "seed", "length", "depth", "rows", *WAYS, "other", "nats")
        if frame["seed"].nunique() != self.summary["seeds"] or frame.duplicated(["seed", "length", "depth"]).any():
            raise damaged(
                path, f"a seed is missing or a line stands twice; summary.json has {self.summary['seeds']} seeds"
            )
        return frame

    def found(self, length: int, way: str = "chosen") -> pd.DataFrame:
        """Points of needles found, by seed (rows) and depth (columns)."""
        own = self.frame[self.frame["length"] == length]
        if own.empty:
            raise UserError(f"{self.folder}/haystack.csv has no rows of {length} tokens")
        own = own.assign(points=100 * own[way] / own["rows"])
        table = own.pivot(index="seed", columns="depth", values="points")
        if table.isna().any(axis=None) or len(table) != self.summary["seeds"]:
            raise damaged(self.folder / "haystack.csv", f"of {length} tokens a seed or depth is missing")
        return table
