"""Recall in context, seed by seed, with the most pairs that training has, in documents of its length and longer."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.measures.recall import level, pairs_in
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, PLAIN, headline, look, note, sheet

CONTROL, LEARNT = "up-removed", 80
"""The arm without up-projection and table, and percent of right values from which on a seed has learnt the task."""
HEADLINE = "All models learn to recall, but for some seeds without up-projection and table"


def collect(scores: Scores) -> pd.DataFrame:
    """Return right values of every arm, in percent, by length: their mean and every seed's."""
    rows, pairs = [], pairs_in(scores, scores.scale.model.sequence)[-1]
    for arm in scores.recipe.arms:
        for length in scores.scale.recall.lengths:
            found = level(scores, arm, length, [pairs])
            rows.append(mean_row(f"all, {length} tokens", arm, pairs, found.share))
            rows += [
                {"panel": f"seeds, {length} tokens", "what": arm, "x": pairs, "value": value} for value in found.percent
            ]
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw a panel per length, with a row of dots per arm, one for each seed."""
    lengths, arms = scores.scale.recall.lengths, list(scores.recipe.arms)
    letters = "abcdefgh"[: len(lengths)]
    figure, grid = sheet(letters, 2.7, {}, sharey=True)
    for letter, length in zip(letters, lengths, strict=True):
        axes, seeds = grid[letter], pick(data, panel=f"seeds, {length} tokens")
        for place, arm in enumerate(arms):
            values = pick(seeds, what=arm)["value"]
            at = place + np.linspace(-0.25, 0.25, len(values)) if len(values) > 1 else [place]
            axes.plot(values, at, **look(arm, joined=False) | {"mec": "white", "mew": 0.5})
        chance = 100 / scores.catalog.mixes[scores.scale.data].values
        axes.axvline(chance, color="black", lw=0.6, ls=":")
        note(axes, "chance", (chance, -0.35), (3, 0), color=PLAIN)
        trained = " (trained)" if length == scores.scale.model.sequence else ""
        axes.set_title(f"{letter}  {seeds['x'].iloc[0]} pairs, {length} tokens{trained}")
        axes.set_yticks(range(len(arms)), [ARM_LABEL[arm] for arm in arms])
        axes.set(xlabel="right values of each seed (%)", xlim=(-2, 104))
    grid[letters[0]].invert_yaxis()
    last = pick(data, panel=f"seeds, {scores.scale.model.sequence} tokens").groupby("what")["value"].min()
    shown = (last.drop(CONTROL, errors="ignore") > LEARNT).all() and last.get(CONTROL, 100) < LEARNT
    headline(figure, HEADLINE, bool(shown), scores.recipe.title)
    return figure
