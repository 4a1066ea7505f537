"""Runs of an arm with their results, and how results become tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from stemrepro.training.run import Run

Report = Callable[[int, float, float], None]  # called with the step that equals the share done, a loss and a time
Result = dict[str, Any]  # what the `score` of a kind gives for one run
Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Scored:
    """The runs of one arm at one variant, with the result of each; `given` are the arguments of scoring.

    Before them come the first seeds that were scored before, `kept_seeds`, with their lines: their weights are gone.
    """

    runs: list[Run]
    results: list[Result]
    given: dict[str, Any]
    kept: Tables = field(default_factory=dict)
    kept_seeds: tuple[int, ...] = ()

    @property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return [*self.kept_seeds, *(run.seed for run in self.runs)]

    @property
    def ended(self) -> list[tuple[Run, Result]]:
        """The runs that didn't diverge, with their results."""
        return [pair for pair in zip(self.runs, self.results, strict=True) if pair[0].diverged is None]

    def lines(self, make: Callable[..., pd.DataFrame], *args: object) -> pd.DataFrame:
        """Return `make(result, *args)` of all runs that ended, one below the other, with the run's seed."""
        return pd.concat([make(result, *args).assign(seed=run.seed) for run, result in self.ended], ignore_index=True)


def long(axes: tuple[str, ...], **columns: np.ndarray) -> pd.DataFrame:
    """Return a line per cell of arrays that broadcast to one shape; `axes` name columns with its place in it."""
    arrays = np.broadcast_arrays(*columns.values())
    cells = zip((*axes, *columns), (*np.indices(arrays[0].shape), *arrays), strict=True)
    return pd.DataFrame({name: array.ravel() for name, array in cells})


def halved(values: np.ndarray) -> np.ndarray:
    """Return numbers to the precision of float16, which compresses well, as float32."""
    return values.astype(np.float16).astype(np.float32)
