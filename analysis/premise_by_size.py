"""How much of W_u x the token alone tells in dense models of 0.14M to 135M parameters, by depth, size and training."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures import premise_by_size
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, PLAIN, draw_means, headline, name_ends, sheet
from stemrepro.verdicts.effect import of_share

HEADLINE = (
    "The token explains more of what up-projections compute in our small models\nthan in a real one of 135M parameters"
)
LOOKS: dict[int, dict[str, Any]] = {
    32: {"marker": "o", "mfc": "white", "ls": ":"},
    64: {"marker": "s", "mfc": "white", "ls": "--"},
    128: {"marker": "^", "mfc": PLAIN, "ls": "-"},
}
PUBLISHED = "SmolLM2-135M,\nwidth 576"


def collect(scores: Scores) -> pd.DataFrame:
    """Return shares by depth at each size and budget, those of the published model, and means over layers by budget."""
    rows, last, items = [], scores.scale.model.layers - 1, premise_by_size.tokens(scores)
    for variant in (MAIN, *scores.recipe.variants):
        at = scores.catalog.variant(variant).at(scores.scale)
        width, tokens = at.model.width, at.training.tokens
        for what in ("up", "gate"):
            for address in ("token", "limit"):
                for layer, shares in enumerate(premise_by_size.shares(scores, variant, what, address)):
                    about = f"{what}, {address}, width {width}, {tokens:,} tokens"
                    rows.append(mean_row("depth", about, layer / last, of_share(shares, items)))
        share = of_share(premise_by_size.share(scores, variant, "up", "full"), items)
        rows.append(mean_row("by budget", f"width {width}", tokens, share))
    published = premise_by_size.published(scores)
    for layer, found in enumerate(published):
        depth = layer / (len(published) - 1)
        rows.append({"panel": "depth", "what": "up, limit, published", "x": depth, "value": found})
    return pd.DataFrame(rows)


def draw_depth(axes: Axes, data: pd.DataFrame, tokens: str) -> None:
    """Draw shares against relative depth."""
    ends = {}
    for number, (width, looks) in enumerate(LOOKS.items()):
        rows = pick(data, panel="depth", what=f"up, limit, width {width}, {tokens} tokens")
        draw_means(axes, rows["x"].astype(float) + 0.012 * (number - 1), rows, color=PLAIN, **looks)
        ends[f"width {width}"] = rows["value"].iloc[-1], PLAIN
    rows = pick(data, what="up, limit, published")
    axes.plot(rows["x"].astype(float), rows["value"], color=ARM_COLOUR["dense"], lw=2)
    if len(rows):
        ends[PUBLISHED] = rows["value"].iloc[-1], ARM_COLOUR["dense"]
    axes.set_ylim(0, 104)
    axes.set(
        xlabel="layer, from the first (0) to the last (1)",
        ylabel="share of the variance that rows\nof endless text explain (%)",
    )
    name_ends(axes, ends)


def draw_budget(axes: Axes, data: pd.DataFrame) -> None:
    """Draw means over all layers but the first against the tokens of training."""
    ends = {}
    for width, looks in LOOKS.items():
        rows = pick(data, panel="by budget", what=f"width {width}")
        rows = rows.assign(x=rows["x"].astype(float)).sort_values("x")
        draw_means(axes, rows["x"] / 1e6, rows, color=PLAIN, **looks)
        ends[f"width {width}: {rows['value'].iloc[-1]:.0f}%"] = rows["value"].iloc[-1], PLAIN
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="by budget")["x"].astype(float).unique() / 1e6)
    axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    axes.set_ylim(50, 102)
    axes.set(
        xlabel="million tokens of training",
        ylabel="explained by rows of our text (%),\nmean of all layers but the first",
    )
    name_ends(axes, ends)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw two panels."""
    figure, grid = sheet("ab", 3.2, {"a": "What a row explains, by depth", "b": "More training"}, width_ratios=(1.3, 1))
    tokens = f"{scores.scale.training.tokens:,}"
    draw_depth(grid["a"], data, tokens)
    draw_budget(grid["b"], data)
    real = pick(data, what="up, limit, published").astype({"x": float})
    ours = [pick(data, panel="depth", what=f"up, limit, width {width}, {tokens} tokens") for width in LOOKS]
    more = [rows["ci_low"] > np.interp(rows["x"].astype(float), real["x"], real["value"]) for rows in ours]
    headline(figure, HEADLINE, bool(len(real) and np.all(more)), scores.recipe.title)
    return figure
