"""Readers of score files; a missing or damaged one is named."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged, read_json
from stemrepro.common.yaml_records import Factor, Fraction, Positive, Strict, parse
from stemrepro.config.address import Address
from stemrepro.config.recipe import Recipe
from stemrepro.verdicts.contrast import Contrast, Unmeasured

if TYPE_CHECKING:
    import pandas as pd

Names = tuple[str, ...]
Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class Task(Strict):
    """Keys of a benchmark in summary.json."""

    model_config = ConfigDict(extra="ignore")

    items: Positive
    chance: Fraction = 0.0
    majority: Fraction = 0.0


class Loss(Strict):
    """Keys of a source of text in summary.json."""

    nats_per_token: Amount
    bits_per_byte: Amount


class Summary(Strict):
    """Keys that parts write into summary.json; nothing reads other keys."""

    model_config = ConfigDict(extra="ignore")

    seeds: Positive
    params_hash: str
    data_hash: str
    plan: dict[str, str | int | float] = Field(default_factory=dict)
    seed_numbers: tuple[Count, ...] = ()
    steps: Positive = 1
    diverged: dict[Annotated[str, Field(pattern=r"^\d+$")], Positive] = Field(default_factory=dict)
    loss: dict[str, Loss] = Field(default_factory=dict)
    unigram_nats_per_token: Amount = 0.0
    training_entropy: Amount = 0.0
    learning_rate: Factor = 1.0
    forward_flops_per_token: Factor = 1.0
    parameters: dict[str, Count] = Field(default_factory=dict)
    tasks: dict[str, Task] = Field(default_factory=dict)
    width: Positive = 1
    ffn_width: Positive = 1
    layers: tuple[Count, ...] = ()
    methods: Names = ()
    tables: Count = 0


class Keys(dict):
    """Keys and values of a file; a requested key that is missing is damage of that file."""

    def __init__(self, path: Path, values: dict) -> None:
        super().__init__(
            {key: Keys(path, value) if isinstance(value, dict) else value for key, value in values.items()}
        )
        self.path = path

    def __missing__(self, key: str) -> None:
        raise damaged(self.path, f"no '{key}' in it")


def read_summary(path: Path, *keys: str) -> Keys:
    """Return summary.json of scores.

    "seeds" (how many), "params_hash", "data_hash" and the requested keys must exist. "diverged", {seed: step}, tells
    which of these runs have no scores.
    """
    summary = read_json(path)
    try:
        parse(Summary, summary, path, exact=True)
    except UserError as error:
        raise damaged(path, str(error).removeprefix(f"{path}: ")) from error
    checked = Keys(path, summary)
    for key in keys:
        _ = checked[key]
    return checked


def read_csv(path: Path, *numbers: str, negative: Names = (), words: Names = (), flags: Names = ()) -> pd.DataFrame:
    """Return a CSV file; buckets stay text.

    Args:
        path: of the file.
        numbers: columns that must be finite and, but for those of `negative`, not below 0.
        negative: columns of `numbers` that may be below 0.
        words: columns that must exist.
        flags: columns that must hold True and False.
    """
    import pandas as pd  # a third of a second that reading recipes can do without

    try:
        frame = pd.read_csv(path, dtype={"bucket": str})
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    if missing := [column for column in (*numbers, *words, *flags) if column not in frame]:
        raise damaged(path, f"no column '{missing[0]}'")
    for column in flags:
        if frame[column].dtype != bool:
            raise damaged(
                path, f"column '{column}' must hold True and False; it holds {frame[column].head(1).tolist()}"
            )
    for column in numbers:
        values = pd.to_numeric(frame[column], errors="coerce")
        wrong = ~np.isfinite(values) | ((values < 0) & (column not in negative))
        if wrong.any():
            raise damaged(path, f"column '{column}' holds {frame[column][wrong].iloc[0]!r}")
    return frame


KINDS = {"yes or no": "b", "whole numbers": "iu", "numbers": "fiu", "labels": "Uiu"}
"""Kinds of arrays, and numpy's letters for each."""


class Array(NamedTuple):
    """Requirements of an array of a file.

    Attributes:
        kind: one of KINDS.
        axes: what its axes count. Arrays of a file that share an axis are equally long along it.
        least, most: bounds of its numbers; None for none.
        gaps: whether numbers may be NaN.
    """

    kind: str
    axes: str
    least: float | None = 0.0
    most: float | None = None
    gaps: bool = False


SEEDS = Array("whole numbers", "seeds")


def read_npz(path: Path, wanted: dict[str, Array], **sizes: int) -> dict[str, np.ndarray]:
    """Return arrays of an npz file by name; nothing in it is executed.

    Args:
        wanted: those that are read, "seeds" first.
        sizes: lengths of axes that are known elsewhere.

    Raises:
        UserError: an array is missing or wrong; names it and what would be right.
    """
    try:
        with np.load(path, allow_pickle=False) as opened:
            arrays = {name: opened[name] for name in wanted if name in opened.files}
    except Exception as error:  # zipfile, zlib, numpy and the system all have their own
        raise damaged(path, error) from error
    for name, (kind, axes, least, most, gaps) in wanted.items():
        if name not in arrays:
            raise damaged(path, f"no array '{name}'")
        values, names = arrays[name], axes.split()
        if values.ndim == len(names):
            sizes = dict(zip(names, values.shape, strict=True)) | sizes
        if values.dtype.kind not in KINDS[kind] or values.shape != tuple(sizes.get(axis) for axis in names):
            right = f"{kind} of {' x '.join(f'{sizes[axis]} {axis}' if axis in sizes else axis for axis in names)}"
            raise damaged(path, f"'{name}' must hold {right}; it holds {values.dtype} in the shape {values.shape}")
        if kind in ("whole numbers", "numbers"):
            check_numbers(path, name, values[~np.isnan(values)] if gaps else values, least, most)
    if "seeds" in arrays and len(set(arrays["seeds"].tolist())) < len(arrays["seeds"]):
        raise damaged(path, f"'seeds' names a seed twice: {arrays['seeds'].tolist()}")
    return arrays


def check_numbers(
    path: Path, name: str, values: np.ndarray, least: float | None = 0.0, most: float | None = None
) -> None:
    """Raise UserError where an array holds a number that is not finite, below `least` or above `most`."""
    wrong = ~np.isfinite(values)
    wrong |= False if least is None else values < least
    wrong |= False if most is None else values > most
    if wrong.any():
        bounds = ", ".join(
            f"{word} {bound:g}" for word, bound in (("not below", least), ("not above", most)) if bound is not None
        )
        raise damaged(
            path,
            f"'{name}' holds {values[wrong].flat[0]}; it must hold finite numbers{', ' + bounds if bounds else ''}",
        )


class ArmScores:
    """One part of an arm's scores.

    Args:
        folder: `scores/<scale>/<part>/...` of the arm.
    """

    keys: ClassVar[Names] = ()
    """Keys that summary.json must have next to those of every part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(Address(self.folder.parent.name, self.folder.name))

    @cached_property
    def summary(self) -> dict:
        """summary.json."""
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

    def lines(self, file: str, *numbers: str, by: Names = (), **columns: Names) -> pd.DataFrame:
        """Read a CSV file of an arm of which no run diverged: `read_csv`, with a line per seed and `by`.

        Raises:
            UserError: a seed is missing.
            Unmeasured: a run diverged.
        """
        path = self.whole().folder / file
        frame = read_csv(path, "seed", *numbers, **columns)
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

    def read_items(self, file: str, wanted: dict[str, Array]) -> dict[str, np.ndarray]:
        """Read "seeds", and of each task the arrays `wanted`, of the runs that didn't diverge."""
        path, seeds = self.folder / file, self.summary["seeds"] - len(self.diverged)
        arrays = read_npz(path, {"seeds": SEEDS}, seeds=seeds)
        for task, about in self.summary["tasks"].items():
            named = {f"{task}/{field}": array for field, array in wanted.items()}
            arrays |= read_npz(path, named, seeds=seeds, items=about["items"])
        return arrays


def difference(one: np.ndarray, other: np.ndarray) -> Contrast:
    """Return two arms' difference by seed, over the first seeds, which both have."""
    count = min(len(one), len(other))
    return Contrast(one[:count] - other[:count])
