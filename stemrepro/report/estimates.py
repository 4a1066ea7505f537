"""A recipe's estimates: numbers with intervals but without verdicts, for data.csv."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stemrepro.common.files import damaged
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Estimate, Recipe
from stemrepro.measures.scores import Scores
from stemrepro.report.evidence import effect_of
from stemrepro.report.results import mean_row
from stemrepro.verdicts.effect import Unmeasured, Untested

PANEL = "estimates"


def _row(name: str, estimate: Estimate, scores: Scores) -> dict[str, Any]:
    row = {"panel": PANEL, "what": name, "unit": estimate.unit}
    try:
        effect = effect_of(estimate, scores)
    except (Unmeasured, Untested) as error:
        return row | {"reason": str(error)}
    if lost := int(np.isnan(effect.differences).sum()):
        return row | {"reason": f"in {lost} of {len(effect.differences)} seeds it has no value"}
    if not estimate.arms:
        return row | {"value": effect.mean}
    mean = {key: value for key, value in mean_row(PANEL, name, None, effect).items() if key != "x"}
    return mean | row | {"by_seed": " ".join(f"{value:.6g}" for value in effect.differences)}


def with_estimates(data: pd.DataFrame, scores: Scores) -> pd.DataFrame:
    """Return the lines of a figure with its recipe's estimates below: `what` is the name of each, `unit` its unit.

    `by_seed` holds the differences. An estimate that the runs can't give has a `reason` in place of a value.
    """
    rows = pd.DataFrame([_row(name, estimate, scores) for name, estimate in scores.recipe.estimates.items()])
    if rows.empty:
        return data
    numbers = {column: "Int64" for column in data if pd.api.types.is_integer_dtype(data[column])}
    return pd.concat([data.astype(numbers), rows], ignore_index=True)  # Int64: gaps make no whole number a float


class Printed(NamedTuple):
    """A number that the paper prints, next to what it should be by computation."""

    label: str
    unit: str
    printed: float
    computed: float
    same: bool
    slip: bool

    @property
    def deviation(self) -> str:
        """Computed less printed, in percent where that can be said."""
        off = self.computed - self.printed
        words = f"{100 * off / self.printed:+.2g}%" if self.printed else f"{off:+.3g} {self.unit}"
        return f"{words}, a slip of the last digit" if self.slip else words


def printed_numbers(recipe: Recipe, file: Path, group: str) -> list[Printed]:
    """Return the computed estimates of a group: those whose names begin with its word and that are printed somewhere.

    Args:
        file: data.csv with the lines of `with_estimates`; UserError where it lacks one or can't be read.
        group: the word.
    """
    try:
        data = pd.read_csv(file, dtype={"by_seed": str})
        values = data[data["panel"] == PANEL].set_index("what")["value"].loc[list(recipe.estimates)].astype(float)
    except (OSError, ValueError, KeyError) as error:
        raise damaged(file, error) from error
    return [
        Printed(
            one.label,
            one.unit,
            one.paper.value,
            values[name],
            same=not one.deviates(values[name]),
            slip=one.slips(values[name]),
        )
        for name, one in recipe.estimates.items()
        if name.startswith(f"{group}-") and isinstance(one.paper, PaperNumber)
    ]
