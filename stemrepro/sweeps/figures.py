"""Figures of a sweep. A ring is an arm's best; it is orange where that lies at an end of what was searched."""

import textwrap

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.report.style import ARM_LABEL, footer, plt
from stemrepro.sweeps.best import NO_FIELDS, Edge, best_settings, fields, means, share
from stemrepro.sweeps.spec import Range, Space

AT_END = "#d55e00"
LOSS = "prose loss, tune split (nats/token)"
MOST_LINES = 8
"""Most lines of a panel that a legend can tell apart."""


def _label(arm: str) -> str:
    return ARM_LABEL.get(arm, arm).replace(" (control)", "")


def _ring(axes: Axes, x: float, y: float, at_end: bool) -> None:
    axes.plot(x, y, "o", mfc="none", mec=AT_END if at_end else "black", mew=1.6 if at_end else 1.0, ms=7, zorder=5)


def rate_figure(table: pd.DataFrame, edges: list[Edge]) -> Figure:
    """Draw the tune loss against the learning rate, one panel per arm.

    Each setting of the other fields is a line, the mean over seeds, and each seed a dot; the best is a ring. Grey lines
    are dense at its best, for comparison. A setting with a seed that diverged has no mean. An arm that diverged at all
    settings has no panel.
    """
    table = table[table["state"] != "pruned"]
    others = [key for key in table if key not in (*NO_FIELDS, "learning_rate") and table[key].nunique() > 1]
    settings = list(dict.fromkeys(map(tuple, table.sort_values(others)[others].to_numpy()))) if others else [()]
    shades = dict(zip(settings, sns.color_palette("crest", len(settings)), strict=True))
    best, at_end = best_settings(table).set_index("arm"), {edge.arm for edge in edges}
    arms = [arm for arm in dict.fromkeys(table["arm"]) if arm in best.index]
    columns = min(4, max(1, len(arms)))
    rows = -(-max(1, len(arms)) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(7.4 / 4 * max(2.4, columns), 1.95 * rows),
        sharex=True,
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    high = figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0.33 / high, 1, 1 - 0.33 / high))
    over_seeds = means(table)
    dense = over_seeds[over_seeds["arm"] == "dense"].groupby("learning_rate")["prose"].min()
    for axes, arm in zip(grid.flat, arms, strict=False):
        axes.plot(dense.index, dense, color="#b0b0b0", lw=1)
        for setting, shade in shades.items():
            line, dots = (
                lines[(lines["arm"] == arm) & (lines[others] == list(setting)).all(axis=1)]
                for lines in (over_seeds, table)
            )
            axes.plot(line["learning_rate"], line["prose"], color=shade, lw=1.3)
            axes.plot(dots["learning_rate"], dots["prose"], "o", color=shade, ms=2)
        _ring(axes, best.loc[arm, "learning_rate"], best.loc[arm, "prose"], arm in at_end)
        axes.set_title(_label(arm), fontsize=8)
        axes.set_xscale("log", base=2)
        ticks = sorted(table["learning_rate"].unique())
        axes.set_xticks(ticks, [f"{1000 * tick:g}" for tick in ticks], fontsize=7)
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    for axes in grid.flat[len(arms) :]:
        axes.set_visible(False)
    for axes in grid.flat[max(0, len(arms) - columns) : len(arms)]:
        axes.tick_params(labelbottom=True)  # where an incomplete last row leaves a column's end above it
    if 1 < len(shades) <= MOST_LINES:
        for setting, shade in shades.items():
            words = ", ".join(value if isinstance(value, str) else f"{value:g}" for value in setting)
            grid.flat[0].plot([], [], color=shade, label=words)
        title = ", ".join(key.replace("_", " ") for key in others)
        grid.flat[0].legend(fontsize=6, title=title, title_fontsize=6, ncols=2)
    figure.supxlabel("learning rate (thousandths)", fontsize=8, y=0.17 / high)  # above the footer
    figure.supylabel(LOSS, fontsize=8)
    seeds = table["seed"].nunique()
    text = f"{seeds} seed{'' if seeds == 1 else 's'} a setting, none of which a recipe uses"
    footer(figure, f"{text}; orange: best at an end of the grid" if edges else text)
    return figure


def slices_figure(table: pd.DataFrame, keys: list[str], edges: list[Edge]) -> Figure:
    """Draw the tune loss against each field of an open search, one row per arm.

    Every trial is a dot (pruned ones hollow, at the loss they were stopped with), the best a ring.
    """
    arms, table = list(dict.fromkeys(table["arm"])), table[np.isfinite(table["prose"])]
    best, at_end = best_settings(table).set_index("arm"), {(edge.arm, edge.key) for edge in edges}
    figure, grid = plt.subplots(
        len(arms), len(keys), figsize=(7.4, max(2.8, 1.25 * len(arms) + 0.6)), sharex="col", sharey="row",
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for arm, line in zip(arms, grid, strict=True):
        complete = table[(table["arm"] == arm) & (table["state"] == "complete")]
        cut = table[(table["arm"] == arm) & (table["state"] == "pruned")]
        for key, axes in zip(keys, line, strict=True):
            if complete[key].nunique() > 1:
                axes.plot(cut[key], cut["prose"], "o", ms=2.5, mfc="none", mec="#b0b0b0")
                axes.plot(complete[key], complete["prose"], "o", ms=2.5, color="#0173b2")
                _ring(axes, best.loc[arm, key], best.loc[arm, "prose"], (arm, key) in at_end)
            if (table[key] > 0).all() and table[key].max() > 3 * table[key].min():
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(mpl.ticker.LogLocator(numticks=4, subs=(1, 3)))
                axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
                axes.xaxis.set_major_formatter("{x:g}")
            axes.tick_params(labelsize=6.5)
        low, high = complete["prose"].min(), complete["prose"].quantile(0.75)
        line[0].set_ylim(low - 0.1 * (high - low), high + 0.5 * (high - low))
        line[0].set_ylabel(textwrap.fill(_label(arm), 16), fontsize=7)
    for key, axes in zip(keys, grid[-1], strict=True):
        axes.set_xlabel(key.replace("_", "\n"), fontsize=7)
    figure.supylabel(LOSS, fontsize=8)
    figure.get_layout_engine().set(rect=(0, 0.15 / figure.get_figheight(), 1, 1 - 0.15 / figure.get_figheight()))
    if edges:
        footer(figure, "orange: best at an end of the range")
    return figure


def importances_figure(shares: pd.DataFrame) -> Figure:
    """Draw what decides whether a setting is among an arm's best: arms by fields; a row adds up to 1."""
    grid = shares.pivot(index="arm", columns="field", values="importance")
    grid = grid.loc[list(dict.fromkeys(shares["arm"])), list(dict.fromkeys(shares["field"]))]
    figure, axes = plt.subplots(
        figsize=(max(3.7, 1.7 + 0.8 * grid.shape[1]), 1 + 0.3 * grid.shape[0]), layout="constrained"
    )
    names = [[_label(arm) for arm in grid.index], [key.replace("_", "\n") for key in grid.columns]]
    sns.heatmap(
        grid, ax=axes, vmin=0, vmax=1, cmap="crest", annot=True, fmt=".2f", cbar=False,
        yticklabels=names[0], xticklabels=names[1], annot_kws={"size": 7},
    )  # fmt: skip
    axes.tick_params(labelsize=7, length=0, rotation=0)
    axes.set(xlabel="", ylabel="")
    axes.set_title("share in being among the best (PED-ANOVA)", fontsize=8)
    return figure


def parallel_figure(table: pd.DataFrame, space: Space) -> Figure:
    """Draw parallel coordinates, one row per arm with two fields or more.

    Every setting that ended is a line through its fields to its loss, darker for a lower one; the best is orange.
    """
    ended = means(table)
    ended = ended[np.isfinite(ended["prose"])]
    arms = [arm for arm in dict.fromkeys(ended["arm"]) if len(fields(table, arm)) > 1]
    figure, grid = plt.subplots(len(arms), 1, figsize=(7.4, 1.6 * len(arms) + 0.3), squeeze=False, layout="constrained")
    for arm, axes in zip(arms, grid.flat, strict=True):
        settings = ended[ended["arm"] == arm].sort_values("prose", ascending=False)
        keys = [*fields(table, arm), "prose"]
        places = np.column_stack([_places(axes, n, settings[key], space.get(key)) for n, key in enumerate(keys)])
        shades = sns.color_palette("light:#0173b2", len(settings))
        for row, (line, shade) in enumerate(zip(places, shades, strict=True)):
            last = row == len(settings) - 1
            axes.plot(line, color=AT_END if last else shade, lw=1.6 if last else 0.9)
        names = ["loss" if key == "prose" else key.replace("_", "\n") for key in keys]
        axes.set_xticks(range(len(keys)), names, fontsize=7)
        axes.set(yticks=[], ylim=(-0.08, 1.08), xlim=(-0.3, len(keys) - 0.55))
        axes.spines["left"].set_visible(False)
        axes.set_title(_label(arm), fontsize=8)
    return figure


def _places(axes: Axes, column: int, values: pd.Series, searched: object) -> np.ndarray:
    """Draw a field's axis with its values; return the heights in 0 to 1 at which lines cross it."""
    axes.axvline(column, color="#d0d0d0", lw=0.8, zorder=0)
    if not pd.api.types.is_numeric_dtype(values) or not isinstance(searched, Range):
        ordered = sorted(values.unique())
        if values.name == "prose":
            marks = {ordered[0]: 0.0, ordered[-1]: 1.0}
            heights = (values - ordered[0]) / ((ordered[-1] - ordered[0]) or 1.0)
        else:
            marks = {value: n / max(1, len(ordered) - 1) for n, value in enumerate(ordered)}
            heights = values.map(marks)
    else:
        marks = {searched.low: 0.0, searched.high: 1.0}
        heights = values.map(lambda value: share(value, searched.low, searched.high, searched.log))
    for value, height in marks.items():
        words = value if isinstance(value, str) else f"{value:.4g}"
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
        axes.annotate(words, (column, height), (3, 0), textcoords="offset points", fontsize=6, va="center", bbox=box)
    return heights.to_numpy(float)
