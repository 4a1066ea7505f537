"""How scores are written: whole files, finite numbers only, and summary.json last."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.training.run import Run


@dataclass(frozen=True)
class Scored:
    """The runs of one arm at one variant, with the result of each."""

    runs: list[Run]
    results: list[dict]
    out: Path
    given: dict

    @property
    def ended(self) -> list[tuple[Run, dict]]:
        """The runs that didn't diverge, with their results."""
        pairs = zip(self.runs, self.results, strict=True)
        return [(run, result) for run, result in pairs if run.diverged is None]

    def save_lines(self, file: str) -> dict:
        """Write results that are frames into a CSV file, each with its run's seed; summary.json says nothing more."""
        if self.ended:
            save_frame(self.out / file, pd.concat([result.assign(seed=run.seed) for run, result in self.ended]))
        return {}


def save_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a CSV file; raise UserError when a number in it isn't finite, or a loss is below 0."""
    numbers = frame.select_dtypes("number")
    if not np.isfinite(numbers).all(axis=None) or ("nats" in numbers and (numbers["nats"] < 0).any()):
        raise UserError(f"{path}: scores hold a number that can't be; the weights or the text are damaged")
    atomic_write(path, frame.to_csv(index=False, float_format="%.6f"))


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an npz file without dates, so that equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    atomic_write(path, buffer.getvalue())
