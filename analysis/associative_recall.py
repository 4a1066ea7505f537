"""Recall in context by number of pairs, at the trained length and beyond it."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.claims import Contrast
from stemrepro.measures.recall import Recall
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, error_bars, plt


def collect(measure: Recall) -> pd.DataFrame:
    """Accuracy of every arm by number of pairs and length, over all queries and over the first of each key."""
    rows = []
    for arm in measure.arms:
        for length in measure.inputs.scale.recall.lengths:
            for pairs in measure.pairs(length):
                rows.append(
                    mean_row(f"all, {length} tokens", arm, pairs, Contrast(measure.accuracy(arm, pairs, length)))
                )
                rows.append(
                    mean_row(
                        f"first, {length} tokens", arm, pairs, Contrast(measure.accuracy(arm, pairs, length, True))
                    )
                )
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, measure: Recall) -> Figure:
    """A panel a length, and which queries: all of them, and the first of each key."""
    lengths = measure.inputs.scale.recall.lengths
    figure, grid = plt.subplots(
        2, len(lengths), figsize=(7.4, 5.6), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    figure.get_layout_engine().set(rect=(0, 0.025, 1, 0.975))
    letters = iter("abcdefgh")
    for row, which in enumerate(("all", "first")):
        for column, length in enumerate(lengths):
            axes, own = grid[row][column], data[data["panel"] == f"{which}, {length} tokens"]
            shifts = np.linspace(-0.06, 0.06, len(measure.arms))
            for shift, arm in zip(shifts, measure.arms, strict=True):
                line = own[own["what"] == arm]
                axes.errorbar(np.log2(line["x"].astype(float)) + shift, line["value"], yerr=error_bars(line), fmt=f"{ARM_MARKER[arm]}-",
                              color=ARM_COLOUR[arm], ms=4, lw=0.9, capsize=1.5, label=ARM_LABEL[arm])  # fmt: skip
            trained = " (trained on)" if length == measure.trained else ""
            asked = "every query" if which == "all" else "the first query of each key"
            axes.set_title(f"{next(letters)}  {length} tokens{trained}, {asked}", fontsize=8)
            axes.axhline(
                100 / measure.inputs.book.mixes[measure.inputs.scale.data].values, color="black", lw=0.6, ls=":"
            )
            ticks = sorted({int(x) for x in data["x"]})
            axes.set_xticks(np.log2(ticks), ticks)
            axes.set_ylim(0, 102)
            if row:
                axes.set_xlabel("pairs in the context (dotted: chance)")
            if not column:
                axes.set_ylabel("right values (%)")
    grid[0][0].legend(fontsize=7, loc="lower left")
    return figure
