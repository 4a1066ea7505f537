"""Readers of an arm's scores.

Like all effects they raise UserError for scores that are missing, damaged or don't belong together, and Unmeasured
where a run diverged.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.config.recipe import Recipe
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures import store
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Effect, Unmeasured

if TYPE_CHECKING:
    import pandas as pd

KIND_OF = {table: name for name, kind in SCORE_KINDS.items() for table in kind.tables}
"""The kind of scores that a table is of."""


class ArmScores:
    """An arm's scores of one kind, in scores/<scale>."""

    kind: str

    def __init__(self, folder: Path, address: Address) -> None:
        self.folder, self.address = folder, address

    def __str__(self) -> str:
        return str(self.address)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Hashes of settings and text, number of seeds, costs, means; see protocol.parquet."""
        return dict(store.about(self.folder, self.kind, self.address))

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

    def lines(self, table: str) -> pd.DataFrame:
        """Return the arm's lines of a table, without variant and arm."""
        return store.lines(self.folder, self.kind, self.address, table)

    def by_seed(self, table: str) -> pd.DataFrame:
        """Return the lines of an arm of which no run diverged, every seed with as many."""
        frame, seeds = self.whole().lines(table), self.summary["seeds"]
        counts = frame["seed"].value_counts()
        if len(counts) != seeds or counts.nunique() != 1:
            missing = f"of {self} a seed of {seeds}, or a line of one, is missing"
            raise damaged(self.folder / f"{table}.parquet", missing)
        return frame


@kept
def arm_table(scores: Scores, name: str, arm: str, variant: str = MAIN) -> pd.DataFrame:
    """Return an arm's lines of a table, without variant and arm, every seed with as many; none may have diverged."""
    reader = ArmScores(scores.folder, Address(variant, arm))
    reader.kind = KIND_OF[name]
    return reader.by_seed(name) if "seed" in store.TABLES[name] else reader.whole().lines(name)


def array(frame: pd.DataFrame, value: str, *axes: str) -> np.ndarray:
    """Return a column as an array whose axes are other columns, in order of first occurrence; all cells are there."""
    shape = [frame[axis].nunique() for axis in axes]
    if len(frame) != np.prod(shape):
        raise UserError(f"'{value}' has {len(frame)} lines; by {', '.join(axes)} there should be {int(np.prod(shape))}")
    return frame[value].to_numpy().reshape(shape)


class ArmTasks(ArmScores):
    """Scores of an arm on the tasks of a recipe, item by item."""

    def __init__(self, folder: Path, address: Address, recipe: Recipe) -> None:
        super().__init__(folder, address)
        self.recipe = recipe

    def tasks(self, what: str) -> list[str]:
        """Return the tasks of a group, or the task itself, as far as the scale has them."""
        return [task for task in self.recipe.groups.get(what, (what,)) if task in self.summary["tasks"]]

    @cached_property
    def items(self) -> dict[str, pd.DataFrame]:
        """The lines of each task, by seed and item."""
        return dict(list(self.whole().by_seed(self.kind).groupby("task", sort=False)))

    @cached_property
    def seeds(self) -> np.ndarray:
        """Numbers of the seeds [seeds]; they are counted where the scale has no items, and so no lines."""
        if not self.summary["tasks"]:
            return np.arange(self.summary["seeds"] - len(self.diverged))
        return self.lines(self.kind)["seed"].unique()

    def by_item(self, task: str, field: str) -> np.ndarray:
        """Return a column of a task [seeds, items]."""
        return array(self.items[task], field, "seed", "item")


def difference(one: np.ndarray, other: np.ndarray) -> Effect:
    """Return two arms' difference by seed, over the first seeds, which both have."""
    count = min(len(one), len(other))
    return Effect(one[:count] - other[:count])


def read_csv(path: Path, *columns: str) -> pd.DataFrame:
    """Return a CSV file of counts in a text. It must have the columns, and finite numbers in them."""
    import pandas as pd  # a third of a second that reading recipes can do without

    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    if missing := [column for column in columns if column not in frame]:
        raise damaged(path, f"no column '{missing[0]}'")
    finite = np.isfinite(frame[list(columns)].select_dtypes("number")).all()
    if not finite.all():
        raise damaged(path, f"column '{finite.idxmin()}' holds a number that is not finite")
    return frame
