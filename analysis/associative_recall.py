"""Recall in context by number of pairs, at the trained length and beyond it."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.measures.recall import level, pairs_in
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, draw_means, look, one_legend, sheet


def collect(scores: Scores) -> pd.DataFrame:
    """Return accuracy of every arm by number of pairs and length, over all queries and over the first of each key."""
    rows = []
    for arm in scores.recipe.arms:
        for length in scores.scale.recall.lengths:
            for pairs in pairs_in(scores, length):
                for which, first in (("all", False), ("first", True)):
                    share = level(scores, arm, length, [pairs], first).share
                    rows.append(mean_row(f"{which}, {length} tokens", arm, pairs, share))
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw a panel per length and kind of query: all of them, and the first of each key."""
    lengths, arms = scores.scale.recall.lengths, scores.recipe.arms
    letters = np.array(list("abcdefgh")[: 2 * len(lengths)]).reshape(2, len(lengths))
    figure, grid = sheet(letters.tolist(), 5.6, {}, sharex=True, sharey=True)
    for row, which in enumerate(("all", "first")):
        for letter, length in zip(letters[row], lengths, strict=True):
            axes, accuracies = grid[letter], pick(data, panel=f"{which}, {length} tokens")
            shifts = np.linspace(-0.09, 0.09, len(arms))
            for shift, arm in zip(shifts, arms, strict=True):
                line = pick(accuracies, what=arm)
                draw_means(axes, np.log2(line["x"].astype(float)) + shift, line, **look(arm), label=ARM_LABEL[arm])
            trained = " (trained)" if length == scores.scale.model.sequence else ""
            queries = "every query" if which == "all" else "first queries"
            axes.set_title(f"{letter}  {length} tokens{trained}, {queries}")
            axes.axhline(100 / scores.catalog.mixes[scores.scale.data].values, color="black", lw=0.6, ls=":")
            ticks = sorted({int(x) for x in data["x"]})
            axes.set_xticks(np.log2(ticks), ticks)
            axes.set_ylim(-2, 104)
            axes.set(xlabel="pairs in the context (dotted: chance)", ylabel="right values (%)")
            axes.label_outer()
    one_legend(figure, list(grid.values()), columns=5)
    return figure
