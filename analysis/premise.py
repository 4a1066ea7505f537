"""How much of what a published model's up-projections compute the token alone tells, by layer and by length of the text
that its rows are means over, and what reading the rows of one layer costs. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import premise
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import HUES, PLAIN, SMALLEST, draw_means, sheet

SERIES = {
    ("up", "token"): ("$W_u x$, token", "orange", "D"),
    ("up", "pair"): ("$W_u x$, pair of tokens", "yellow", "s"),
    ("gate", "token"): ("$W_g x$, token", "blue", "^"),
    ("up", "limit"): ("$W_u x$, token, endless text", "grey", "v"),
}
UNDRAWN = (("out", "token"), ("up", "another token"))
"""In data.csv alone: single places decide the variance of what one FFN gives; the row of another token is a control."""
THIRDS = {"early": "first third of the layers", "third": "layers of STEM 1/3", "late": "last third"}


def collect(scores: Scores) -> pd.DataFrame:
    """Return shares by layer and by length of the rows' text, and costs by layer."""
    rows = []
    for what, address in (*SERIES, *UNDRAWN):
        for layer in premise.every_layer(scores):
            share = premise.share(scores, what, address, [layer])
            rows.append(mean_row("explained", f"{what}, {address}", layer, share))
    for layers in THIRDS:
        chosen = premise.layers_of_set(scores, layers)
        for budget in premise.budgets(scores):
            for panel, address in (("by length", "token"), ("limit", "limit")):
                rows.append(mean_row(panel, layers, budget, premise.share(scores, "up", address, chosen, budget)))
    for layer in premise.every_layer(scores):
        for of in ("loss", "kl"):
            rows.append(mean_row("cost", of, layer, premise.cost_of(scores, [layer], of)))
    return pd.DataFrame(rows)


def draw_depth(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the shares that rows explain against the layer."""
    for (what, address), (label, hue, marker) in SERIES.items():
        rows = pick(data, panel="explained", what=f"{what}, {address}")
        draw_means(axes, rows["x"], rows, color=HUES[hue], marker=marker, ms=4, lw=1, label=label)
    axes.axhline(50, color=PLAIN, lw=0.8, ls=":")
    axes.set_ylim(0, 100)
    axes.set(xlabel="layer", ylabel="share of the variance\nthat a row explains (%)")
    axes.legend(fontsize=SMALLEST)


def draw_length(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the shares against the tokens that rows are means over; hollow and dotted is the share of endless text."""
    for (layers, label), hue, marker in zip(THIRDS.items(), ("orange", "green", "blue"), ("D", "o", "^"), strict=True):
        rows = pick(data, panel="by length", what=layers)
        draw_means(axes, rows["x"].astype(float) / 1e3, rows, color=HUES[hue], marker=marker, ms=5, label=label)
        limit = pick(data, panel="limit", what=layers)
        x = limit["x"].astype(float) / 1e3
        style = {"color": HUES[hue], "marker": marker, "ms": 5, "mfc": "white", "ls": ":"}
        draw_means(axes, x, limit, **style)
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="by length")["x"].astype(float).unique() / 1e3)
    axes.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="thousand tokens of the rows' text", ylabel="$W_u x$: explained (%)")
    axes.legend(fontsize=SMALLEST)


def draw_cost(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what reading the rows of one layer costs, by layer."""
    rows = pick(data, panel="cost", what="loss")
    draw_means(axes, rows["x"], rows, color=HUES["orange"], marker="D", ms=4, ls="none")
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="the one layer with rows", ylabel="loss above dense's\n(nats/token)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw three panels."""
    titles = {"a": "What a row explains, by layer", "b": "More text for the rows", "c": "One layer reads rows"}
    figure, grid = sheet("aa;bc", 5.6, titles)
    draw_depth(grid["a"], data)
    draw_length(grid["b"], data)
    draw_cost(grid["c"], data)
    return figure
