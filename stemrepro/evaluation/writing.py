"""Runs of an arm with their results, and how results become tables."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stemrepro.training.run import Run


@dataclass(frozen=True)
class Scored:
    """The runs of one arm at one variant, with the result of each; `given` are the arguments of scoring."""

    runs: list[Run]
    results: list[dict]
    given: dict

    @property
    def ended(self) -> list[tuple[Run, dict]]:
        """The runs that didn't diverge, with their results."""
        pairs = zip(self.runs, self.results, strict=True)
        return [(run, result) for run, result in pairs if run.diverged is None]

    def lines(self, make: Callable[..., pd.DataFrame], *args: object) -> pd.DataFrame:
        """Return `make(result, *args)` of all runs that ended, one below the other, with the run's seed."""
        return pd.concat([make(result, *args).assign(seed=run.seed) for run, result in self.ended], ignore_index=True)


def long(axes: tuple[str, ...], **columns: np.ndarray) -> pd.DataFrame:
    """Return a line per cell of arrays that broadcast to one shape.

    Args:
        axes: columns with the cell's place in the array, one per dimension.
        columns: the arrays, by the name of their column.
    """
    arrays = np.broadcast_arrays(*columns.values())
    places = np.indices(arrays[0].shape)
    cells = {name: array.ravel() for name, array in zip((*axes, *columns), (*places, *arrays), strict=True)}
    return pd.DataFrame(cells)


def halved(values: np.ndarray) -> np.ndarray:
    """Return numbers to the precision of float16, which compresses well, as float32."""
    return values.astype(np.float16).astype(np.float32)
