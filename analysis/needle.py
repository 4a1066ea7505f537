"""Needles found by length and depth after an extension of the context, and leads over dense by length."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.needle import KEPT, chosen, found, level, trained_length
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    PLAIN,
    SMALL,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
    short,
)
from stemrepro.verdicts.effect import of_share

MAPS = ("dense", "stem-third", "stem-full")
HEADLINE = (
    "In the mean STEM finds a few more needles than dense in the extended context,\nand fewer in texts twice as long"
)


def collect(scores: Scores) -> pd.DataFrame:
    """Return what every arm finds after the extension by length and depth, and leads over dense by length."""
    rows, lengths = [], scores.scale.haystack.lengths
    for arm in scores.recipe.arms_at(KEPT):
        for length in lengths:
            rows.append(mean_row(f"chosen, {KEPT}", arm, length, level(scores, arm, length, KEPT).share))
            by_depth, needles = found(scores, arm, length, KEPT), level(scores, arm, length, KEPT).items
            rows += [
                mean_row(f"depth {depth:g}, {KEPT}", arm, length, of_share(points, needles / len(by_depth.columns)))
                for depth, points in by_depth.items()
            ]
        if arm != "dense":
            rows += [mean_row("lead", arm, length, chosen(scores, arm, "dense", length, KEPT)) for length in lengths]
    return pd.DataFrame(rows)


def draw_map(axes: Axes, data: pd.DataFrame, arm: str, depths: tuple[float, ...], trained: int) -> None:
    """Draw an arm's points: a row per depth, a column per length, a line after the longest length of training."""
    panels = [f"depth {depth:g}, {KEPT}" for depth in depths]
    points = data[(data["what"] == arm) & data["panel"].isin(panels)].astype({"x": int})
    table = points.pivot(index="panel", columns="x", values="value").loc[panels]
    axes.imshow(table, vmin=0, vmax=100, cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(table.to_numpy()):
        middle = {"ha": "center", "va": "center", "color": "white" if value < 60 else "black"}
        axes.text(column, row, f"{value:.0f}", fontsize=SMALL, **middle)
    lengths = list(table.columns)
    axes.axvline(lengths.index(trained) + 0.5, color="white", lw=1.6)
    axes.set_xticks(range(len(lengths)), lengths, fontsize=SMALL)
    axes.set_yticks(range(len(depths)), [f"{d:g}" for d in depths], fontsize=SMALL)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set(xlabel="tokens that are read", ylabel="depth (0: start)")


def draw_lead(axes: Axes, data: pd.DataFrame, scores: Scores, trained: int) -> None:
    """Draw leads over dense by length, with a line after the longest length of training."""
    leads, ends = pick(data, panel="lead"), {}
    arms = [arm for arm in scores.recipe.arms if arm != "dense"]
    for shift, arm in zip(np.linspace(-0.12, 0.12, len(arms)), arms, strict=True):
        line = pick(leads, what=arm)
        draw_means(axes, np.log2(line["x"].astype(float)) + shift, line, **look(arm))
        ends[short(arm)] = line["value"].iloc[-1], ARM_COLOUR[arm]
    axes.axhline(0, color="black", lw=0.6)
    axes.axvline(np.log2(trained) + 0.5, color=PLAIN, lw=0.8, ls=":")
    words = f"← trained on {trained} tokens and fewer"
    note(
        axes,
        words,
        (np.log2(trained) + 0.5, 0.04),
        (-4, 0),
        xycoords=axes.get_xaxis_transform(),
        ha="right",
        color=PLAIN,
    )
    lengths = sorted({int(x) for x in leads["x"]})
    axes.set_xticks(np.log2(lengths), lengths)
    axes.set(xlabel="tokens that are read", ylabel=f"lead over dense (points), {BETTER}")
    name_ends(axes, ends)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw heat maps of three arms after the extension, and leads by length below."""
    titles = {letter: f"{ARM_LABEL[arm]}: found (%)" for letter, arm in zip("abc", MAPS, strict=True)}
    figure, grid = sheet([[[["a", "b", "c"]]], ["d"]], 5.6, titles | {"d": "More found than by dense"})
    trained = trained_length(scores, KEPT)
    for letter, arm in zip("abc", MAPS, strict=True):
        draw_map(grid[letter], data, arm, scores.scale.haystack.depths, trained)
        grid[letter].yaxis.label.set_visible(letter == "a")
    draw_lead(grid["d"], data, scores, trained)
    leads = pick(data, panel="lead").assign(x=lambda rows: rows["x"].astype(float)).set_index(["x", "what"])["value"]
    stem = leads.unstack()[list(MAPS[1:])]
    shown = (stem.loc[trained] > 0).all() and (stem.loc[stem.index > trained] < 0).all(axis=None)
    headline(figure, HEADLINE, bool(shown), scores.recipe.title)
    return figure
