"""Leads over dense on prose by how far back the target stood last in the sequence, and by position in it."""

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.buckets import bucket_name
from stemrepro.measures.reasoning import by_distance, loss
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, GAIN, SMALL, draw_means, headline, look, name_ends, sheet, short
from stemrepro.verdicts.effect import Effect

HEADLINE = (
    "From the fifth token of a sequence on STEM's lead over dense stays the same;\n"
    "pooled over distances, it is no larger on tokens that occurred before than on new ones"
)
STEM = ("stem-full", "stem-third")
ARMS = (*STEM, "token-only")
FEWEST = 20
"""Targets that a bucket needs to be drawn."""
WORDS = {
    "distance": "tokens since the target occurred last",
    "position": "position in the sequence",
}


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads over dense and shares of targets by distance and position."""
    rows = []
    for by in WORDS:
        lines = by_distance(scores, "dense", by)
        tokens = pick(lines, seed=lines["seed"].min()).groupby("at")["tokens"].sum()
        for at, after in pairwise([*tokens.index, 2**30]):
            if tokens[at] < FEWEST:
                continue
            rows.append(mean_row(f"share, {by}", "targets", at, Effect(np.array([100 * tokens[at] / tokens.sum()]))))
            rows += [mean_row(f"lead, {by}", arm, at, loss(scores, "dense", arm, by, at, after)) for arm in ARMS]
    return pd.DataFrame(rows)


def draw_lead(axes: Axes, data: pd.DataFrame, by: str) -> None:
    """Draw leads over dense by bucket, and below the axis the share of targets in each."""
    shares, ends = pick(data, panel=f"share, {by}"), {}
    edges = tuple(int(x) for x in shares["x"])
    for shift, arm in zip((-0.12, 0, 0.12), ARMS, strict=True):
        leads = pick(data, panel=f"lead, {by}", what=arm)
        draw_means(axes, np.arange(len(leads)) + shift, leads, **look(arm))
        ends[short(arm)] = leads["value"].iloc[-1], ARM_COLOUR[arm]
    names = [bucket_name(edges, number) for number in range(len(edges))]
    if by == "distance":
        names[0] = "new"
    words = [f"{name}\n{share:.1f}%" for name, share in zip(names, shares["value"], strict=True)]
    axes.set_xticks(range(len(edges)), words, fontsize=SMALL)
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel=f"{WORDS[by]}\n(below: share of all targets)", ylabel=GAIN)
    name_ends(axes, ends, 0.11)


def no_growth(data: pd.DataFrame) -> bool:
    """Say whether STEM's leads are within 0.02 of each other from the fifth token on, and no larger on repeats."""
    leads = data[data["what"].isin(STEM)].assign(x=data["x"].astype(float))
    late = pick(leads, panel="lead, position").query("x >= 4")
    later = late.groupby("what")["value"]
    by_distance = pick(leads, panel="lead, distance").pivot(index="x", columns="what", values="value")
    shares = pick(data, panel="share, distance")["value"].to_numpy()[1:, None]
    repeats = (by_distance.iloc[1:] * shares).sum() / shares.sum()
    same = (late["ci_low"] > 0).all() and (later.max() - later.min() < 0.02).all()
    return bool(same and (repeats <= by_distance.iloc[0]).all())


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads over dense by distance and by position."""
    titles = {"a": "By position in the sequence", "b": "By distance to the last occurrence"}
    figure, grid = sheet("a;b", 5.4, titles)
    for letter, by in zip("ab", ("position", "distance"), strict=True):
        draw_lead(grid[letter], data, by)
    headline(figure, HEADLINE, no_growth(data), scores.recipe.title)
    return figure
