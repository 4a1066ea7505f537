"""How much of what a published model's up-projections compute the token alone tells, by layer and by length of the text
that its rows are means over, and what reading the rows of one layer costs. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import premise
from stemrepro.measures.scores import Scores
from stemrepro.model.config import layers_of
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    LESS,
    PLAIN,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)

HEADLINE = (
    "In a real model the token explains less than half of what up-projections compute,\n"
    "averaged over the layers that STEM 1/3 replaces"
)
SERIES = {
    ("up", "token"): ("up-projection", {"ls": "-"}),
    ("up", "limit"): ("up-projection,\nendless text", {"ls": ":", "mfc": "white"}),
    ("gate", "token"): ("gate", {"ls": "--", "marker": "v", "color": PLAIN, "mfc": PLAIN}),
}
"""Name, and what a line has of its own beyond dense's look."""
UNDRAWN = (("out", "token"), ("up", "another token"))
"""In data.csv alone: single places decide the variance of what one FFN gives; the row of another token is a control."""
REPLACED = "stem-third"
"""Arm in whose look its layers are drawn."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return shares by layer and by length of the rows' text, and costs by layer."""
    rows = []
    for what, address in (*SERIES, *UNDRAWN):
        for layer in premise.every_layer(scores):
            share = premise.share(scores, what, address, [layer])
            rows.append(mean_row("explained", f"{what}, {address}", layer, share))
    chosen = premise.layers_of_set(scores, "third")
    for budget in premise.budgets(scores):
        for panel, address in (("by length", "token"), ("limit", "limit")):
            rows.append(mean_row(panel, "third", budget, premise.share(scores, "up", address, chosen, budget)))
    for layer in premise.every_layer(scores):
        rows.append(mean_row("cost", "loss", layer, premise.cost_of(scores, [layer])))
    return pd.DataFrame(rows)


def replaced(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the layers that STEM 1/3 replaces."""
    return rows[rows["x"].astype(int).isin(layers_of("third", len(rows)))]


def draw_depth(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the shares that rows explain against the layer."""
    ends = {}
    for (what, address), (name, own) in SERIES.items():
        rows = pick(data, panel="explained", what=f"{what}, {address}")
        looks = look("dense") | {"ms": 3.5, "lw": 0.9} | own
        draw_means(axes, rows["x"].astype(int), rows, **looks)
        ends[name] = rows["value"].iloc[-1], looks["color"]
    rows = pick(data, panel="explained", what="up, token")
    third, first = replaced(rows), rows.iloc[0]
    draw_means(axes, third["x"].astype(int), third, **look(REPLACED, joined=False) | {"ms": 5, "zorder": 3})
    note(axes, "layers that STEM 1/3 replaces", (13.5, 20), (0, 0), color=ARM_COLOUR[REPLACED])
    note(axes, f"first layer: {first['value']:.0f}%; STEM leaves it dense", (0, first["value"]), (14, 4), color=PLAIN)
    axes.axhline(50, color=PLAIN, lw=0.8, ls=":")
    axes.set_ylim(0, 102)
    axes.set(xlabel="layer", ylabel="share of the variance that a\ntoken's row explains (%)")
    name_ends(axes, ends, 0.12)


def draw_length(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the shares against the tokens that rows are means over; hollow and dotted is the share of endless text."""
    ends = {}
    for panel, name in (("by length", "rows of\nthis text"), ("limit", "endless text\n(estimate)")):
        rows, hollow = pick(data, panel=panel, what="third"), panel == "limit"
        looks = look(REPLACED, hollow) | ({"ls": ":"} if hollow else {})
        draw_means(axes, rows["x"].astype(float) / 1e3, rows, **looks)
        last = rows.iloc[-1]
        ends[f"{name}:\n{last['value']:.0f}% ({last['ci_low']:.0f} to {last['ci_high']:.0f})"] = (
            last["value"],
            ARM_COLOUR[REPLACED],
        )
    axes.axhline(50, color=PLAIN, lw=0.8, ls=":")
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="by length")["x"].astype(float).unique() / 1e3)
    axes.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
    axes.set_ylim(0, 60)
    axes.set(xlabel="thousand tokens of the rows' text", ylabel="explained (%), mean of\nSTEM 1/3's layers")
    name_ends(axes, ends, 0.25)


def draw_cost(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what reading the rows of one layer costs, by layer."""
    rows = pick(data, panel="cost", what="loss")
    third = replaced(rows)
    draw_means(axes, rows["x"].astype(int), rows, color=PLAIN, marker="o", ms=3.5, ls="none")
    draw_means(axes, third["x"].astype(int), third, **look(REPLACED, joined=False) | {"ms": 5, "zorder": 3})
    mean = rows["value"].iloc[1:].mean()
    note(axes, f"mean of all but the first: {mean:.2f}", (4, 0.72), (0, 0), color=PLAIN)
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="the one layer with rows", ylabel=f"{LESS}, loss above\ndense's (nats/token)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw shares by layer and by text, and what one layer with rows costs."""
    titles = {"a": "What a row explains, by layer", "b": "More text for the rows", "c": "Cost if one layer reads rows"}
    figure, grid = sheet("aa;bc", 5.4, titles)
    draw_depth(grid["a"], data)
    draw_length(grid["b"], data)
    draw_cost(grid["c"], data)
    last = data[data["panel"].isin(["by length", "limit"]) & (data["what"] == "third")].groupby("panel").last()
    headline(figure, HEADLINE, bool((last["ci_high"] < 50).all()), scores.recipe.title)
    return figure
