"""The results of a sweep: every trial, each arm's best settings, what decided, and figures, all from one table."""

from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.common.files import atomic_write
from stemrepro.config.arm import Arm
from stemrepro.report.style import plt, render, settle, use_style
from stemrepro.sweeps.best import best_settings, edges, fields, importances
from stemrepro.sweeps.figures import importances_figure, parallel_figure, rate_figure, slices_figure
from stemrepro.sweeps.spec import Range, Space, Sweep


def best_table(table: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Return the best settings, and in `at_edge` the fields of which they are at an end."""
    best, ends = best_settings(table), edges(table, space)
    words = {arm: "; ".join(f"{edge.key} {edge.end}" for edge in ends if edge.arm == arm) for arm in best["arm"]}
    return best.assign(at_edge=best["arm"].map(words))


def figures(sweep: Sweep, table: pd.DataFrame) -> dict:
    """Draw the figures of a sweep, by name.

    They are the loss against a grid's learning rate, or against each field of an open search. Where an arm has two
    fields or more, parallel coordinates and importances follow. An open search whose trials all have one loss has none.
    """
    ends, space = edges(table, sweep.space), sweep.space
    if sweep.sampler == "grid":
        drawn = {"figure": rate_figure(table, ends)}
    elif table.loc[np.isfinite(table["prose"]), "prose"].nunique() < 2:
        return {}
    else:
        ranges = [key for key, values in space.items() if isinstance(values, Range)]
        drawn = {"figure": slices_figure(table, ranges, ends)}
    if any(len(fields(table, arm)) > 1 for arm in best_settings(table)["arm"]):
        drawn["parallel"] = parallel_figure(table, space)
    if len(shares := importances(table, space)):
        drawn["importances"] = importances_figure(shares)
    return drawn


def write_results(sweep: Sweep, table: pd.DataFrame, folder: Path, arms: dict[str, Arm]) -> None:
    """Write data.csv (every setting), best.csv, importances.csv where there are any, and the figures."""
    shares = importances(table, sweep.space)
    atomic_write(folder / "data.csv", table.to_csv(index=False, float_format="%.6g"))
    atomic_write(folder / "best.csv", best_table(table, sweep.space).to_csv(index=False, float_format="%.6g"))
    if len(shares):
        atomic_write(folder / "importances.csv", shares.to_csv(index=False, float_format="%.4f"))
    use_style(arms)
    for name, figure in figures(sweep, table).items():
        settle(figure)
        atomic_write(folder / f"{name}.svg", render(figure, "svg"))
        plt.close(figure)
