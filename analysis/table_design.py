"""Reviewers' wish: how a table starts, learns, how wide and how long it is and whether layers share it; gains by token
frequency.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.scores import Scores
from stemrepro.measures.tables import loss, vocabularies
from stemrepro.report.forest import draw_forest, draw_robustness, mark_settings, name_rows, robustness_rows
from stemrepro.report.results import mean_row, or_nan, pick
from stemrepro.report.style import ARM_COLOUR, BETTER, GAIN, PLAIN, SMALL, draw_means, headline, look, note, sheet
from stemrepro.verdicts.effect import Effect

HEADLINE = (
    "Most of STEM's gain needs rows that are trained and belong to their token;\n"
    "no other choice for the table costs half of the gain, in the mean"
)
NAMES = {
    "stem-full": "STEM full: starts Xavier-normal",
    "stem-small": "starts N(0, 0.02²)",
    "stem-normal": "starts N(0, 1)",
    "stem-fast": "learning rate x 8",
    "stem-undecayed": "no weight decay",
    "stem-decayed": "weight decay x 8",
    "stem-rowwise": "AdamW with one moment a row",
    "stem-normed": "rows normalised",
    "stem-lowrank": "half the width",
    "stem-shared": "one table for all layers",
    "token-only": "no gate (token-only)",
    "stem-slots": "one of four rows, by chance",
    "stem-frozen": "rows never trained",
    "stem-shuffled": "rows shuffled at each step",
}
"""What is another in a table than in STEM full's, in groups: start, training, size, controls."""
GROUPS = {"start": 0, "training": 3, "size": 8, "controls": 10}
"""Names of the groups, and the first row of each."""
FREQUENCIES = ("1-31", "32-255", "256-2047", "2048+")
PERCENT = "gain, % of dense's bits per byte"
SPLIT = ("stem-full", "stem-frozen")


def collect(scores: Scores) -> pd.DataFrame:
    """Return gains over dense, in all, by training count of the input token and by vocabulary."""
    rows = []
    for arm in scores.recipe.arms:
        if arm != "dense":
            rows.append(mean_row("loss", arm, "", loss(scores, "dense", arm, "prose")))
        rows += robustness_rows(scores, arm)
    for arm in SPLIT:
        for bucket in FREQUENCIES:
            gain = or_nan(loss, scores, "dense", arm, "prose", frequency=bucket)
            rows.append(mean_row("by frequency", arm, bucket, gain))
    dense, stem = (vocabularies(scores, arm) for arm in ("dense", "stem-full"))
    for vocab, losses in dense.items():
        share = 100 * (1 - stem[vocab].bits_per_byte / losses.bits_per_byte)
        rows.append(mean_row(PERCENT, "stem-full", vocab, Effect(share.to_numpy())))
    return pd.DataFrame(rows)


def draw_frequencies(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense by training count of the input token."""
    gains = pick(data, panel="by frequency")
    for shift, arm in enumerate(SPLIT):
        rows = pick(gains, what=arm).set_index("x").loc[list(FREQUENCIES)]
        draw_means(axes, np.arange(len(rows)) + 0.08 * shift, rows, **look(arm))
        words = NAMES[arm].partition(":")[0]
        note(axes, words, (0.3, 0.8 - 0.65 * shift), (0, 0), xycoords="axes fraction", color=ARM_COLOUR[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(range(len(FREQUENCIES)), FREQUENCIES)
    axes.set(xlabel="training count of the input token", ylabel=GAIN)


def draw_vocabularies(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense by size of the vocabulary."""
    rows = pick(data, panel=PERCENT)
    at = rows["x"].astype(float)
    draw_means(axes, at, rows, **look("stem-full"))
    for vocab, gain in zip(at, rows["value"], strict=True):
        note(axes, f"{gain:.1f}%", (vocab, gain), (8, -8), fontsize=SMALL)
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [f"{vocab:,.0f}" for vocab in at])
    axes.set_xlim(at.min() / 1.3, at.max() * 1.6)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="tokens in the vocabulary", ylabel=f"bits per byte\nbelow dense's (%), {BETTER}")


def needed(*settings: pd.DataFrame) -> bool:
    """Say whether controls without trained rows of their token, and no other arms, have less than half the gain."""
    values = [rows.set_index("what")["value"].drop("dense", errors="ignore") for rows in settings]
    every = pd.concat([gains / gains["stem-full"] for gains in values])
    without = every.index.isin(("stem-frozen", "stem-shuffled"))
    ahead = all((pick(rows, what="stem-full")["ci_low"] > 0).all() for rows in settings)
    return bool(ahead and (every[without] < 0.5).all() and (every[~without] > 0.5).all())


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw gains over dense, by frequency of the input token, and by vocabulary."""
    gains = pick(data, panel="loss")
    order = list(NAMES)
    tokens = scores.scale.training.tokens / 1e6
    titles = {
        "a": f"Gain after {tokens:.2g}M tokens (dotted: half)",
        "b": "By count of the token",
        "c": "Full, by vocabulary",
    }
    figure, grid = sheet("ab;ac", 5.8, titles, width_ratios=(1.3, 1))
    axes = grid["a"]
    draw_forest(axes, gains, order, GAIN)
    draw_robustness(axes, data, order, shift=0.25)
    mark_settings(axes, data)
    half = pick(gains, what="stem-full")["value"].iloc[0] / 2
    axes.axvline(half, color=ARM_COLOUR["stem-full"], lw=0.8, ls=":")
    axes.legend(loc="lower right", borderaxespad=0)
    name_rows(axes, order)
    axes.set_yticks(range(len(order)), list(NAMES.values()))
    for words, first in GROUPS.items():
        note(axes, words, (0, first - 0.36), (4, 0), color=PLAIN)
        if first:
            axes.axhline(first - 0.5, color=PLAIN, lw=0.6, ls=":")
    draw_frequencies(grid["b"], data)
    draw_vocabularies(grid["c"], data)
    headline(figure, HEADLINE, needed(gains, pick(data, panel="loss, official start")), scores.recipe.title)
    return figure
