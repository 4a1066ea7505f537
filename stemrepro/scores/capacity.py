"""Reads how many bits of invented people an arm holds."""

from functools import cached_property

import pandas as pd

from stemrepro.files import damaged
from stemrepro.scores.knowledge import ArmScores
from stemrepro.scores.reading import read_csv


class ArmCapacity(ArmScores):
    """Bits known by one arm at one number of people."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A line a seed: people, facts, bits there, bits known (below 0 where a model is worse than a guess), share of first choices."""
        path = self.whole().folder / "capacity.csv"
        frame = read_csv(path, "seed", "people", "facts", "bits", "known", "first", negative=("known",)).set_index(
            "seed"
        )
        if len(frame) != self.summary["seeds"]:
            raise damaged(path, f"it has {len(frame)} seeds, summary.json {self.summary['seeds']}")
        return frame
