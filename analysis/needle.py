"""Needles found by length and depth before and after the extension, leads over dense by length, and what tables drawn
anew cost.
"""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures.needle import ANEW, KEPT, Needle
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_LABEL, BETTER, LESS, SMALL, error_bars, look, sheet
from stemrepro.verdicts.contrast import Contrast, of_share

MAPS = ("dense", "stem-third", "stem-full")
STAGES = {MAIN: "before", KEPT: "after"}
WINDOWS = 12
"""Parts of the extension's steps, over each of which training losses are averaged."""
DASHES = {KEPT: "-", ANEW: (0, (3, 2))}


def collect(measure: Needle) -> pd.DataFrame:
    """Return what every arm finds by stage, length and depth; leads over dense; losses during the extension."""
    rows, haystack = [], measure.inputs.scale.haystack
    for place, scores in measure.scores.items():
        for length in haystack.lengths:
            needles = measure.needles(place.variant, place.arm, length)
            for way in ("chosen", "generated"):
                points = of_share(measure.found(place.variant, place.arm, length, way), needles)
                rows.append(mean_row(f"{way}, {place.variant}", place.arm, length, points))
            chosen = scores.found(length)
            rows += [
                mean_row(
                    f"depth {depth:g}, {place.variant}", place.arm, length,
                    of_share(chosen[depth].to_numpy(), needles / len(chosen.columns)),
                )
                for depth in chosen.columns
            ]  # fmt: skip
            other = scores.frame[scores.frame["length"] == length].groupby("seed")["other"].sum()
            wrong = of_share(100 * other.to_numpy() / needles, needles)
            rows.append(mean_row(f"another key's value, {place.variant}", place.arm, length, wrong))
        if place.variant == KEPT and place.arm != "dense":
            rows += [
                mean_row("lead", place.arm, length, measure.lead(place.arm, "dense", length, variant=KEPT))
                for length in haystack.lengths
            ]
    for variant in (KEPT, ANEW):
        for arm in measure.inputs.recipe.arms_at(variant):
            losses = measure.losses(variant, arm).steps["loss"]
            tokens = measure.inputs.catalog.variant(variant).at(measure.inputs.scale).training.tokens
            windows = np.array_split(losses, min(WINDOWS, losses.shape[1]), axis=1)
            rows += [
                mean_row(f"loss, {variant}", arm, tokens * (k + 0.5) / len(windows), Contrast(window.mean(axis=1)))
                for k, window in enumerate(windows)
            ]
    return pd.DataFrame(rows)


def draw_map(axes: Axes, data: pd.DataFrame, variant: str, arm: str, depths: tuple[float, ...], trained: int) -> None:
    """Draw an arm's points: a row per depth, a column per length, a line after the longest length of training."""
    points = data[(data["what"] == arm) & data["panel"].isin([f"depth {d:g}, {variant}" for d in depths])]
    table = points.pivot(index="panel", columns="x", values="value").loc[[f"depth {d:g}, {variant}" for d in depths]]
    axes.imshow(table, vmin=0, vmax=100, cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(table.to_numpy()):
        axes.text(
            column,
            row,
            f"{value:.0f}",
            ha="center",
            va="center",
            fontsize=SMALL,
            color="white" if value < 60 else "black",
        )
    lengths = [int(length) for length in table.columns]
    axes.axvline(lengths.index(trained) + 0.5, color="white", lw=1.6)
    axes.set_xticks(range(len(lengths)), lengths, fontsize=SMALL)
    axes.set_yticks(range(len(depths)), [f"{d:g}" for d in depths], fontsize=SMALL)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)


def draw_lead(axes: Axes, data: pd.DataFrame, measure: Needle) -> None:
    """Draw leads over dense by length, after the extension."""
    leads = data[data["panel"] == "lead"]
    arms = [arm for arm in measure.inputs.recipe.arms if arm != "dense"]
    for shift, arm in zip(np.linspace(-0.12, 0.12, len(arms)), arms, strict=True):
        line = leads[leads["what"] == arm]
        axes.errorbar(np.log2(line["x"].astype(float)) + shift, line["value"], yerr=error_bars(line), **look(arm),
                      label=ARM_LABEL[arm])  # fmt: skip
    axes.axhline(0, color="black", lw=0.6)
    lengths = sorted({int(x) for x in leads["x"]})
    axes.set_xticks(np.log2(lengths), lengths)
    axes.set(xlabel="tokens that are read", ylabel=f"lead over dense (points), {BETTER}")
    axes.legend(loc="lower left")


def draw_recovery(axes: Axes, data: pd.DataFrame, measure: Needle) -> None:
    """Draw training losses during the extension: tables kept, and drawn anew."""
    for variant, dashes in DASHES.items():
        for arm in measure.inputs.recipe.arms_at(variant):
            if arm not in MAPS:
                continue
            line = data[(data["panel"] == f"loss, {variant}") & (data["what"] == arm)]
            label = f"{ARM_LABEL[arm]}, tables anew" if variant == ANEW else ARM_LABEL[arm]
            axes.errorbar(line["x"].astype(float) / 1000, line["value"], yerr=error_bars(line), 
                          **look(arm, hollow=variant == ANEW) | {"ls": dashes}, label=label)  # fmt: skip
    axes.set(xlabel="tokens of the extension (thousands)", ylabel=f"{LESS}, training loss\n(nats/token)")
    axes.legend(loc="upper right")


def draw(data: pd.DataFrame, measure: Needle) -> Figure:
    """Draw heat maps of three arms before and after the extension; leads and losses below."""
    maps = dict(zip("abcdef", product(STAGES.items(), MAPS), strict=True))
    titles = {letter: f"{ARM_LABEL[arm]}, {words} (%)" for letter, ((_, words), arm) in maps.items()}
    titles |= {"g": "Lead over dense, after the extension", "h": "Loss during the extension"}
    figure, grid = sheet("aabbcc;ddeeff;ggghhh", 8.2, titles)
    for letter, ((variant, _), arm) in maps.items():
        axes = grid[letter]
        draw_map(axes, data, variant, arm, measure.inputs.scale.haystack.depths, measure.length(variant))
        axes.set(xlabel="tokens that are read", ylabel="depth of the needle")
        if letter not in "ad":
            axes.yaxis.label.set_visible(False)
    draw_lead(grid["g"], data, measure)
    draw_recovery(grid["h"], data, measure)
    return figure
