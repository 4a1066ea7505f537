"""Readers of score files.

They and all contrasts raise UserError for scores that are missing, damaged or don't belong together, and Unmeasured
where a run diverged.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged, read_json
from stemrepro.config.address import Address
from stemrepro.config.recipe import Recipe
from stemrepro.verdicts.contrast import Contrast, Unmeasured

if TYPE_CHECKING:
    import pandas as pd

Names = tuple[str, ...]


class Keys(dict):
    """Keys and values of a file; a requested key that is missing is damage of that file."""

    def __init__(self, path: Path, values: dict) -> None:
        super().__init__((key, Keys(path, one) if isinstance(one, dict) else one) for key, one in values.items())
        self.path = path

    def __missing__(self, key: str) -> None:
        raise damaged(self.path, f"no '{key}' in it")


def read_summary(path: Path, *keys: str) -> Keys:
    """Return summary.json of scores, which must have "seeds" (how many), "params_hash", "data_hash" and the keys.

    "diverged", {seed: step}, tells which of these runs have no scores.
    """
    summary = read_json(path)
    if not isinstance(summary, dict):
        raise damaged(path, "it is no mapping")
    checked = Keys(path, summary)
    for key in ("seeds", "params_hash", "data_hash", *keys):
        _ = checked[key]
    return checked


def read_csv(path: Path, *columns: str) -> pd.DataFrame:
    """Return a CSV file; buckets stay text. It must have the columns, and finite numbers in them."""
    import pandas as pd  # a third of a second that reading recipes can do without

    try:
        frame = pd.read_csv(path, dtype={"bucket": str})
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    if missing := [column for column in columns if column not in frame]:
        raise damaged(path, f"no column '{missing[0]}'")
    finite = np.isfinite(frame[list(columns)].select_dtypes("number")).all()
    if not finite.all():
        raise damaged(path, f"column '{finite.idxmin()}' holds a number that is not finite")
    return frame


def read_npz(path: Path, *names: str, seeds: int | None = None, gaps: bool = False) -> dict[str, np.ndarray]:
    """Return arrays of an npz file by name; nothing in it is executed.

    Args:
        seeds: how many "seeds" must have, where that is known.
        gaps: whether numbers may be NaN.

    Raises:
        UserError: the file can't be read, lacks an array, or holds a number that is not finite.
    """
    try:
        with np.load(path, allow_pickle=False) as opened:
            arrays = {name: opened[name] for name in names if name in opened.files}
    except Exception as error:  # zipfile, zlib, numpy and the system all have their own
        raise damaged(path, error) from error
    for name in names:
        if name not in arrays:
            raise damaged(path, f"no array '{name}'")
        if arrays[name].dtype.kind == "f" and not gaps and not np.isfinite(arrays[name]).all():
            raise damaged(path, f"'{name}' holds a number that is not finite")
    if seeds is not None and len(arrays["seeds"]) != seeds:
        raise damaged(path, f"it has {len(arrays['seeds'])} seeds, summary.json {seeds}")
    return arrays


class ArmScores:
    """One part of an arm's scores."""

    keys: ClassVar[Names] = ()
    """Keys that summary.json must have next to those of every part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(Address(self.folder.parent.name, self.folder.name))

    @cached_property
    def summary(self) -> dict:
        return read_summary(self.folder / "summary.json", *self.keys)

    @property
    def diverged(self) -> dict[int, int]:
        """Runs that ended with a loss of NaN, and the step of each; they have no scores but steps."""
        return {int(seed): step for seed, step in self.summary.get("diverged", {}).items()}

    def whole(self) -> Self:
        """Return this; Unmeasured where a run diverged."""
        if self.diverged:
            seed, step = next(iter(self.diverged.items()))
            raise Unmeasured(f"{self} diverged: the loss of seed {seed} is NaN from step {step} on")
        return self

    def lines(self, file: str, *columns: str, by: Names = ()) -> pd.DataFrame:
        """Read a CSV file of an arm of which no run diverged: `read_csv`, with a line per seed and `by`."""
        path = self.whole().folder / file
        frame = read_csv(path, "seed", *by, *columns)
        if frame["seed"].nunique() != self.summary["seeds"] or frame.duplicated(["seed", *by]).any():
            count = self.summary["seeds"]
            raise damaged(path, f"a seed is missing or a line occurs twice; summary.json has {count} seeds")
        return frame


class ArmTasks(ArmScores):
    """Scores of an arm on the tasks of a recipe, item by item."""

    keys = ("tasks",)

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        super().__init__(folder)
        self.recipe = recipe

    def tasks(self, what: str) -> list[str]:
        """Return the tasks of a group, or the task itself, as far as the scale has them."""
        return [task for task in self.recipe.groups.get(what, (what,)) if task in self.summary["tasks"]]

    def read_items(self, file: str, wanted: Names) -> dict[str, np.ndarray]:
        """Read "seeds", and of each task the arrays `wanted`, of the runs that didn't diverge."""
        names = [f"{task}/{field}" for task in self.summary["tasks"] for field in wanted]
        return read_npz(self.folder / file, "seeds", *names, seeds=self.summary["seeds"] - len(self.diverged))


def check_same(first: ArmScores, second: ArmScores, *names: str) -> None:
    """Raise UserError where arrays of two arms' scores differ that must be the same."""
    if not all(np.array_equal(first.arrays[name], second.arrays[name]) for name in names):
        raise UserError(f"{first.folder} and {second.folder} were scored on different seeds or documents")


def difference(one: np.ndarray, other: np.ndarray) -> Contrast:
    """Return two arms' difference by seed, over the first seeds, which both have."""
    count = min(len(one), len(other))
    return Contrast(one[:count] - other[:count])


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """Read <name>.parquet of a study; UserError where it is missing or damaged."""
    import pandas as pd

    path = folder / f"{name}.parquet"
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
