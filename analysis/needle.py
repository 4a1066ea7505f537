"""Needles found by length and depth before and after the extension, leads over dense by length, and what tables drawn
anew cost.
"""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.needle import ANEW, KEPT, chosen, found, level, trained_length
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick, window_rows
from stemrepro.report.style import ARM_LABEL, BETTER, LESS, SMALL, draw_means, look, sheet
from stemrepro.verdicts.effect import of_share

MAPS = ("dense", "stem-third", "stem-full")
STAGES = {MAIN: "before", KEPT: "after"}
WINDOWS = 12
"""Parts of the extension's steps, over each of which training losses are averaged."""
DASHES = {KEPT: "-", ANEW: (0, (3, 2))}


def collect(scores: Scores) -> pd.DataFrame:
    """Return what every arm finds by stage, length and depth; leads over dense; losses during the extension."""
    rows, lengths = [], scores.scale.haystack.lengths
    for place in scores.places():
        variant, arm = place.variant, place.arm
        for length in lengths:
            for way in ("chosen", "generated"):
                rows.append(mean_row(f"{way}, {variant}", arm, length, level(scores, arm, length, variant, way).share))
            by_depth, needles = found(scores, arm, length, variant), level(scores, arm, length, variant).items
            rows += [
                mean_row(f"depth {depth:g}, {variant}", arm, length, of_share(points, needles / len(by_depth.columns)))
                for depth, points in by_depth.items()
            ]
            wrong = level(scores, arm, length, variant, "other").share
            rows.append(mean_row(f"another key's value, {variant}", arm, length, wrong))
        if variant == KEPT and arm != "dense":
            rows += [mean_row("lead", arm, length, chosen(scores, arm, "dense", length, KEPT)) for length in lengths]
    for variant in (KEPT, ANEW):
        tokens = scores.catalog.variant(variant).at(scores.scale).training.tokens
        for arm in scores.recipe.arms_at(variant):
            steps = arm_losses(scores, arm, variant).steps["loss"]
            rows += window_rows(f"loss, {variant}", arm, steps, tokens, WINDOWS)
    return pd.DataFrame(rows)


def draw_map(axes: Axes, data: pd.DataFrame, variant: str, arm: str, depths: tuple[float, ...], trained: int) -> None:
    """Draw an arm's points: a row per depth, a column per length, a line after the longest length of training."""
    points = data[(data["what"] == arm) & data["panel"].isin([f"depth {d:g}, {variant}" for d in depths])]
    table = points.pivot(index="panel", columns="x", values="value").loc[[f"depth {d:g}, {variant}" for d in depths]]
    axes.imshow(table, vmin=0, vmax=100, cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(table.to_numpy()):
        middle = {"ha": "center", "va": "center", "color": "white" if value < 60 else "black"}
        axes.text(column, row, f"{value:.0f}", fontsize=SMALL, **middle)
    lengths = [int(length) for length in table.columns]
    axes.axvline(lengths.index(trained) + 0.5, color="white", lw=1.6)
    axes.set_xticks(range(len(lengths)), lengths, fontsize=SMALL)
    axes.set_yticks(range(len(depths)), [f"{d:g}" for d in depths], fontsize=SMALL)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def draw_lead(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw leads over dense by length, after the extension."""
    leads = pick(data, panel="lead")
    arms = [arm for arm in scores.recipe.arms if arm != "dense"]
    for shift, arm in zip(np.linspace(-0.12, 0.12, len(arms)), arms, strict=True):
        line = pick(leads, what=arm)
        draw_means(axes, np.log2(line["x"].astype(float)) + shift, line, **look(arm), label=ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    lengths = sorted({int(x) for x in leads["x"]})
    axes.set_xticks(np.log2(lengths), lengths)
    axes.set(xlabel="tokens that are read", ylabel=f"lead over dense (points), {BETTER}")
    axes.legend(loc="lower left")


def draw_recovery(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw training losses during the extension: tables kept, and drawn anew."""
    for variant, dashes in DASHES.items():
        for arm in scores.recipe.arms_at(variant):
            if arm not in MAPS:
                continue
            line = pick(data, panel=f"loss, {variant}", what=arm)
            label = f"{ARM_LABEL[arm]}, tables anew" if variant == ANEW else ARM_LABEL[arm]
            looks = look(arm, hollow=variant == ANEW) | {"ls": dashes}
            draw_means(axes, line["x"].astype(float) / 1000, line, **looks, label=label)
    axes.set(xlabel="tokens of the extension (thousands)", ylabel=f"{LESS}, training loss\n(nats/token)")
    axes.legend(loc="upper right")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw heat maps of three arms before and after the extension; leads and losses below."""
    maps = dict(zip("abcdef", product(STAGES.items(), MAPS), strict=True))
    titles = {letter: f"{ARM_LABEL[arm]}, {words} (%)" for letter, ((_, words), arm) in maps.items()}
    titles |= {"g": "Lead over dense, after the extension", "h": "Loss during the extension"}
    figure, grid = sheet("aabbcc;ddeeff;ggghhh", 8.2, titles)
    for letter, ((variant, _), arm) in maps.items():
        axes = grid[letter]
        draw_map(axes, data, variant, arm, scores.scale.haystack.depths, trained_length(scores, variant))
        axes.set(xlabel="tokens that are read", ylabel="depth of the needle")
        if letter not in "ad":
            axes.yaxis.label.set_visible(False)
    draw_lead(grid["g"], data, scores)
    draw_recovery(grid["h"], data, scores)
    return figure
