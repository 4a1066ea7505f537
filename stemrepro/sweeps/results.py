"""The results of a sweep: every trial, each arm's best settings, and a figure."""

from inspect import signature
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.common.files import atomic_write
from stemrepro.config.scale import TunedSettings
from stemrepro.report.style import WIDTH, headline, note, render, settle, use_style
from stemrepro.sweeps.trials import Range, Space, Sweep

END = 0.05
"""Share of a range, or of its logarithm where it is logarithmic, in which a best counts as at the end next to it."""


def ended(table: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with a finite loss, in nats per token, and in `excess` that above the lowest of their arm."""
    rows = table[np.isfinite(table["prose"]) & (table["state"] != "pruned")]
    return rows.assign(excess=rows["prose"] - rows.groupby("arm")["prose"].transform("min"))


def fields(table: pd.DataFrame) -> list[str]:
    """Return the fields that were tried at more than one value."""
    keys = [key for key in table.columns if key not in ("number", "arm", "seed", "prose", "state", "excess")]
    return [key for key in keys if table[key].nunique() > 1]


def best_settings(table: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Return each arm's settings with the lowest mean loss over seeds; none for an arm that diverged at all of them.

    `at_edge` names the fields in which they are the lowest or highest that the arm was tried at, or within `END` of
    the end of a range: a better one may lie beyond. Names have no order, and so no end.
    """
    kept = table[table["state"] != "pruned"]
    keys = [key for key in table.columns if key not in ("number", "seed", "prose", "state")]
    losses = kept.groupby(keys, as_index=False, sort=False)["prose"].mean()  # infinite where one seed diverged
    losses = losses[np.isfinite(losses["prose"])]
    best = losses.loc[losses.groupby("arm")["prose"].idxmin()].reset_index(drop=True)
    at_edge = []
    for row in best.to_dict("records"):
        tried, ends = table[table["arm"] == row["arm"]], []
        for key in (key for key in fields(tried) if pd.api.types.is_numeric_dtype(tried[key])):
            span, low, at, high = space.get(key), tried[key].min(), row[key], tried[key].max()
            if is_range := isinstance(span, Range):
                low, at, high = np.log([span.low, at, span.high]) if span.log else (span.low, at, span.high)
            share, near = (at - low) / (high - low), END if is_range else 0.0
            ends += [f"{key} lowest"] if share <= near else [f"{key} highest"] if share >= 1 - near else []
        at_edge.append("; ".join(ends))
    return best.assign(at_edge=at_edge)


def tuned_lines(best: pd.DataFrame) -> list[str]:
    """Return the lines under `tuned` of a scale that give arms their best settings."""
    texts = best.map(lambda value: value if isinstance(value, str) else f"{value:.6g}").to_dict("records")
    keys = [key for key in signature(TunedSettings).parameters if key in best]
    return [f"  {row['arm']}: {{{', '.join(f'{key}: {row[key]}' for key in keys)}}}" for row in texts]


def rate_axis(axes: Axes) -> None:
    """Make the x axis one of learning rates."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(mpl.ticker.LogLocator(numticks=4, subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")


def draw_rates(rows: pd.DataFrame) -> Figure:
    """Draw the loss against the learning rate, a panel for each arm."""
    columns = min(4, rows["arm"].nunique())
    looks = {"kind": "line", "errorbar": None, "height": 1.9, "aspect": min(1.6, WIDTH / columns / 1.9), "marker": "o"}
    grid = sns.relplot(rows, x="learning_rate", y="prose", col="arm", col_wrap=columns, **looks)
    grid.set_titles("{col_name}").set_axis_labels("learning rate", "tune loss (nats/token)")
    for axes in grid.axes.flat:
        rate_axis(axes)
    grid.figure.set_layout_engine("constrained")
    return grid.figure


def draw_trials(rows: pd.DataFrame, best: pd.DataFrame) -> Figure:
    """Draw every trial by its learning rate, a line for each arm; the best are ringed, and told if at an edge."""
    figure, axes = plt.subplots(figsize=(WIDTH, 2 + 0.25 * len(best)), layout="constrained")
    place, rows = {arm: at for at, arm in enumerate(best["arm"])}, rows.sort_values("excess", ascending=False)
    dots = axes.scatter(rows["learning_rate"], rows["arm"].map(place), c=rows["excess"], cmap="cividis", s=18)
    figure.colorbar(dots, label="loss above the arm's best\n(nats/token)", shrink=0.6)
    axes.scatter(best["learning_rate"], best["arm"].map(place), s=70, facecolors="none", edgecolors="black")
    for row in best[best["at_edge"] != ""].to_dict("records"):
        where = (1, place[row["arm"]])
        note(axes, row["at_edge"].replace("_", " "), where, (4, 0), xycoords=axes.get_yaxis_transform())
    rate_axis(axes)
    axes.set_xlabel("learning rate (ringed: the best trial; right: its settings at the end of what was tried)")
    axes.set_yticks(range(len(place)), list(place))
    axes.invert_yaxis()
    return figure


def write_results(sweep: Sweep, table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Write data.csv (every setting), best.csv and a figure; return the best settings."""
    best = best_settings(table, sweep.space)
    atomic_write(folder / "data.csv", table.to_csv(index=False, float_format="%.6g"))
    atomic_write(folder / "best.csv", best.to_csv(index=False, float_format="%.6g"))
    if (rows := ended(table)).empty:
        return best
    use_style({})
    figure = draw_rates(rows) if len(fields(rows)) < 2 else draw_trials(rows, best)
    headline(figure, sweep.title)
    settle(figure)
    atomic_write(folder / "figure.svg", render(figure, "svg"))
    plt.close(figure)
    return best
