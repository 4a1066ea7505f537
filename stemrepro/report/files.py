"""Reads score files; a missing or damaged one is named."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.errors import UserError


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path} is missing or damaged ({' '.join(str(error).split())}); restore it or run 'dvc repro' again"
    )


def read_json(path: Path) -> dict:
    """A JSON file."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_csv(path: Path) -> pd.DataFrame:
    """A CSV file; buckets stay text."""
    try:
        return pd.read_csv(path, dtype={"bucket": str})
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file; nothing in it is executed."""
    try:
        with np.load(path, allow_pickle=False) as opened:
            return dict(opened)
    except Exception as error:  # zipfile, zlib, numpy and the system all have their own
        raise _damaged(path, error) from error
