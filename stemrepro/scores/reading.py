"""Reads score files; a missing or damaged one is named."""

from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.files import damaged, read_json


def read_summary(path: Path, *keys: str) -> dict:
    """summary.json of scores: "seeds" (how many), "params_hash", "data_hash" and the asked keys must be there; "diverged", {seed:
    step}, tells which of these runs have no scores."""
    summary = read_json(path)
    needed = ("seeds", "params_hash", "data_hash", *keys)
    if not isinstance(summary, dict) or (missing := [key for key in needed if key not in summary]):
        raise damaged(path, f"no '{missing[0]}' in it" if isinstance(summary, dict) else "it holds no keys")
    if type(summary["seeds"]) is not int or summary["seeds"] < 1:
        raise damaged(path, f"seeds is {summary['seeds']!r}")
    kinds = {"loss": dict, "diverged": dict, "tasks": dict, "plan": dict, "layers": list}
    for key, kind in kinds.items():
        if not isinstance(summary.get(key, kind()), kind):
            raise damaged(path, f"{key} is {summary[key]!r}")
    return summary


def read_csv(path: Path, *numbers: str, negative: tuple[str, ...] = ()) -> pd.DataFrame:
    """A CSV file; buckets stay text. The columns `numbers` must be there, finite and, but for those of `negative`, not below 0."""
    try:
        frame = pd.read_csv(path, dtype={"bucket": str})
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    for column in numbers:
        if column not in frame:
            raise damaged(path, f"no column '{column}'")
        values = pd.to_numeric(frame[column], errors="coerce")
        wrong = ~np.isfinite(values) | ((values < 0) & (column not in negative))
        if wrong.any():
            raise damaged(path, f"column '{column}' holds {frame[column][wrong].iloc[0]!r}")
    return frame


def read_npz(path: Path, *names: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file, `names` among them; nothing in it is executed."""
    try:
        with np.load(path, allow_pickle=False) as opened:
            arrays = dict(opened)
    except Exception as error:  # zipfile, zlib, numpy and the system all have their own
        raise damaged(path, error) from error
    if missing := [name for name in names if name not in arrays]:
        raise damaged(path, f"no array '{missing[0]}'")
    return arrays


def check_finite(path: Path, name: str, values: np.ndarray, least: float | None = 0.0) -> None:
    """Raises UserError where an array holds a number that is none, or one below `least`."""
    if not np.isfinite(values).all() or (least is not None and values.size and values.min() < least):
        raise damaged(path, f"'{name}' holds a number that it can't")
