"""Which memory is ahead, on each track: leads with intervals and ranks, with sizes and controls."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.leaderboard import FLOPS, SIZE, TIME, costs, lead, places, size, tracks
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    PLAIN,
    draw_means,
    headline,
    look,
    note,
    sheet,
    short,
)

TITLES = {FLOPS: "Equal FLOPs", SIZE: "Equal size", TIME: "Equal time"}
ON_ZERO = 0.3
"""Points of a lead so small that the line at 0 would strike through the name next to it."""
LEAD = "below dense's loss (%) →"
NO_SHAPE = "shape not ranked"
"""Words in place of a lead: the method's FFN is outside of SHAPES."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return the lead of each arm on each track, `x`, with what it costs, and of a method its ranks."""
    rows = []
    for variant, track in tracks(scores).items():
        standing = {place.arm: place for place in places(scores, variant)}
        for arm in scores.recipe.arms_at(variant):
            rows.append(mean_row("lead", arm, track, lead(scores, "dense", arm, variant)))
            numbers = costs(scores, arm, variant)
            if place := standing.get(arm):
                numbers |= {"rank": place.rank, "best rank": place.best, "worst rank": place.worst}
                numbers |= {"ahead of the next": place.ahead}
            rows += [
                {"panel": panel, "what": arm, "x": track, "value": value}
                for panel, value in numbers.items()
                if not np.isnan(value)
            ]
    return pd.DataFrame(rows)


def draw_ranks(axes: Axes, data: pd.DataFrame, track: str, order: list[str]) -> None:
    """Draw the leads of methods on a track, with the ranks there that they may have; what has none isn't drawn."""
    rows = pick(data, x=track)
    values = rows.set_index(["panel", "what"])["value"]
    ranked = [arm for arm in order if ("rank", arm) in values.index]
    draw_forest(axes, rows[(rows["panel"] == "lead") & rows["what"].isin(ranked)], order, LEAD)
    if len(ranked) < 2:  # dense alone, whose lead over itself is 0
        axes.set(xlim=(-1, 1), xticks=[-1, 0, 1])
    name_rows(axes, order)
    axes.tick_params(labelleft=axes.get_subplotspec().is_first_col())
    for place, arm in enumerate(order):
        words = "-"
        if arm in ranked:
            best, worst = (int(values[which, arm]) for which in ("best rank", "worst rank"))
            words = f"{best}" if best == worst else f"{best}-{worst}"
        else:
            at = (0.02, place), (0, 0)
            note(axes, NO_SHAPE, *at, xycoords=("axes fraction", "data"), color=PLAIN)
        note(axes, words, (1.0, place), (4, 0), xycoords=("axes fraction", "data"))
    note(axes, "rank", (1.0, 1.0), (4, 2), xycoords="axes fraction", va="baseline")


def draw_sizes(axes: Axes, data: pd.DataFrame, order: list[str]) -> None:
    """Write all parameters of the methods at equal FLOPs as multiples of dense's."""
    parameters = pick(data, x=FLOPS, panel="parameters").set_index("what")["value"]
    for place, arm in enumerate(order):
        words = f"{parameters[arm] / parameters['dense']:.1f}x"
        note(axes, words, (1.0, place), (32, 0), xycoords=("axes fraction", "data"))
    note(axes, "size", (1.0, 1.0), (32, 2), xycoords="axes fraction", va="baseline")


def draw_bytes(axes: Axes, data: pd.DataFrame, order: list[str]) -> None:
    """Draw the leads at equal FLOPs against the bytes of rows that a token reads, of methods that have rows."""
    read = pick(data, x=FLOPS, panel="bytes of rows").set_index("what")["value"]
    leads = pick(data, x=FLOPS, panel="lead").set_index("what")
    most = read.reindex(order).max()
    far = [arm for arm in order if read.get(arm, 0) > 0.6 * most]
    for arm in [arm for arm in order if read.get(arm, 0) > 0]:
        draw_means(axes, read[arm], leads.loc[arm], **look(arm, joined=False))
        lead, right = leads.loc[arm, "value"], [other for other in order if read[arm] < read.get(other, 0) < 0.6 * most]
        below = lead - leads.loc[right, "value"]
        near = below[below.abs() < 1]
        push = 0 if near.empty else 7 if near.iloc[0] > 0 else -7
        push = -7 if abs(lead) < ON_ZERO else push
        offset = (-5, 6 - 12 * far.index(arm)) if arm in far else (5, push)
        note(
            axes, ARM_LABEL[arm], (read[arm], lead), offset, ha="right" if arm in far else "left", color=ARM_COLOUR[arm]
        )
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="bytes of rows that a token reads", ylabel=LEAD, xlim=(0, 1.1 * most))


def draw_widths(axes: Axes, data: pd.DataFrame, order: list[str], width: int) -> None:
    """Add the leads at equal FLOPs and another width, hollow."""
    for smaller in [track for track in data["x"].dropna().unique() if track.startswith(f"{FLOPS},")]:
        rows = pick(data, x=smaller, panel="lead")
        draw_forest(axes, rows[rows["what"] != "dense"], order, LEAD, hollow=True, shift=0.3)
        axes.set_xlabel(f"{LEAD}\nwidth {width}, hollow: {smaller.removeprefix(f'{FLOPS}, ')}")


def alone_in_front(data: pd.DataFrame, track: str) -> str | None:
    """Return the name of the method that alone is first on a track; None where none is."""
    worst = pick(data, x=track, panel="worst rank")
    first = list(worst.loc[worst["value"] == 1, "what"])
    return ARM_LABEL[first[0]] if first else None


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the leads on all tracks with the ranks that they leave, those of controls, and leads by bytes of rows."""
    leads = pick(data, x=FLOPS, panel="lead").sort_values("value", ascending=False)
    is_ranked = leads["what"].isin(data.loc[data["panel"] == "rank", "what"])
    order, others = list(leads.loc[is_ranked, "what"]), list(leads.loc[~is_ranked, "what"])
    tracks = dict(zip("abc", [track for track in TITLES if (data["x"] == track).any()], strict=False))
    titles = {letter: TITLES[track] for letter, track in tracks.items()}
    below = "abcde"[len(tracks) :][: 1 + bool(others)]
    titles |= dict(zip(reversed(below), ("By bytes, equal FLOPs", "Controls, equal FLOPs"), strict=False))
    layout: list = [[[list(tracks)]], [[[*below[:-1] * 2, *below[-1] * 3]]]]
    figure, grid = sheet(layout, 7.6, titles, height_ratios=(4.2, 2.6))
    for letter, track in tracks.items():
        if letter != "a":
            grid[letter].sharey(grid["a"])
        draw_ranks(grid[letter], data, track, order)
    draw_sizes(grid["a"], data, order)
    draw_widths(grid["a"], data, order, scores.scale.model.width)
    draw_bytes(grid[below[-1]], data, order)
    if others:
        draw_forest(grid[below[0]], leads, others, LEAD)
        grid[below[0]].set_yticks(range(len(others)), [short(arm) for arm in others])
    dense = data.set_index(["panel", "x", "what"]).loc[("parameters", FLOPS, "dense"), "value"]
    first = alone_in_front(data, FLOPS)
    at = f"(dense: {size(dense, scores.scale.training.tokens)})"
    headline(figure, f"First at equal FLOPs: {first}\n{at}", first is not None, f"{scores.recipe.title}\n{at}")
    return figure
