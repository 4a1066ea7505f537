"""Reviewers' wish: rivals at equal FLOPs and equal time, and with other memories, also by how often a pair was seen."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.losses import arm_losses
from stemrepro.measures.rivals import loss
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import (
    cost_rows,
    draw_buckets,
    draw_forest,
    draw_robustness,
    mark_settings,
    name_rows,
    robustness_rows,
)
from stemrepro.report.results import mean_row, or_nan, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, GAIN, PLAIN, draw_means, look, note, sheet
from stemrepro.verdicts.effect import Effect

PAIRS = ("0", "1-3", "4-31", "32+")
SPLIT = ("stem-full", "token-only", "ngram-table", "dense-equal-size")
DEARER = 1.1
"""Times dense's FLOPs from which a mark is hollow."""
NAMED = {
    "ngram-table": ("right", -7, 0),
    "stem-full": ("right", -7, -7),
    "dense-equal-size": ("right", -7, 7),
    "stem-third": ("right", -6, 5),
    "token-only": ("right", -7, 5),
    "stem-frozen": ("right", -7, 6),
    "topk-moe": ("right", -7, -13),
    "up-removed": ("left", 14, -13),
}
"""Arms that are named next to their mark, with the side of the name that is there, and where, in points."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return gains over dense of each arm, at common and tuned learning rates and by pair count, with costs."""
    rows = []
    for arm in scores.recipe.arms:
        rows += cost_rows(scores, arm)
        if arm == "dense":
            continue
        rows.append(mean_row("loss", arm, "common rate", loss(scores, "dense", arm, "prose")))
        rows += robustness_rows(scores, arm)
        pairs = [or_nan(loss, scores, "dense", arm, "prose", pair=bucket) for bucket in PAIRS]
        rows += [mean_row("by pair", arm, bucket, gain) for bucket, gain in zip(PAIRS, pairs, strict=True)]
    flops = {arm: arm_losses(scores, arm).summary["forward_flops_per_token"] for arm in scores.recipe.arms}
    rows += [
        {"panel": "FLOPs over STEM full's", "what": arm, "value": count / flops["stem-full"]}
        for arm, count in flops.items()
    ]
    gain, memory = (loss(scores, "dense", arm, "prose").differences for arm in ("stem-full", "token-only"))
    rows.append(mean_row("share beyond the last token", "stem-full", "", Effect(1 - memory / gain)))
    return pd.DataFrame(rows)


def draw_sizes(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense against all parameters, tables counted; those that differ most in size have their names."""
    values = {panel: pick(data, panel=panel).set_index("what") for panel in ("loss", "FLOPs", "parameters")}
    for arm, row in values["loss"].iterrows():
        x, flops = (values[panel].loc[arm, "value"] for panel in ("parameters", "FLOPs"))
        draw_means(axes, x, row, zorder=3, **look(arm, hollow=flops >= DEARER, joined=False))
        if arm in NAMED:
            side, *place = NAMED[arm]
            name = ARM_LABEL[arm].removeprefix("STEM, ").removesuffix(" (control)")
            note(axes, name, (x, row["value"]), place, ha=side, color=ARM_COLOUR[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.axvline(1, color="black", lw=0.6, ls=":")
    axes.set_xscale("log", base=2)
    ticks = [1, 1.5, 2, 3, 4]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.plot([], [], "o", color=PLAIN, mfc="white", label=f"{DEARER:g} times dense's FLOPs or more")
    axes.set(xlabel="all parameters / dense's", ylabel=GAIN)
    axes.legend(loc="upper left")


def draw_pairs(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense by training count of the pair."""
    gains = pick(data, panel="by pair")
    draw_buckets(axes, gains, SPLIT, PAIRS)
    axes.set_xticks(range(len(PAIRS)), ["never", *PAIRS[1:]])
    axes.set(xlabel="training count of the pair", ylabel=GAIN)
    axes.set_ylim(top=1.55 * np.nanmax(gains["value"]))
    axes.legend(loc="upper left")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw gains over dense, their sizes, and where they lie."""
    gains = pick(data, panel="loss").sort_values("value", ascending=False)
    order = list(gains["what"])
    titles = {"a": "Gain in prose loss", "b": "By size (marks as in a)", "c": "By count of the token pair"}
    figure, grid = sheet("ab;ac", 6.6, titles)
    draw_forest(grid["a"], gains, order, GAIN, shift=-0.12)
    draw_robustness(grid["a"], data, order, shift=0.2)
    mark_settings(grid["a"], data)
    grid["a"].legend(loc="lower right", ncols=2)
    grid["a"].set_ylim(len(order) + 0.7, -0.5)  # room for the legend, so that none of its marks stands in a row
    name_rows(grid["a"], order)
    draw_sizes(grid["b"], data)
    draw_pairs(grid["c"], data)
    return figure
