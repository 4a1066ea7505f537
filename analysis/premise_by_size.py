"""How much of W_u x the token alone tells in dense models of 0.14M to 135M parameters, by depth, size and training."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures import premise_by_size
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import HUES, PLAIN, SMALLEST, draw_means, sheet
from stemrepro.verdicts.effect import of_share

HUE = {32: "orange", 64: "green", 128: "blue"}
MARKER = {32: "D", 64: "o", 128: "^"}


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
    for layer, share in enumerate(published):
        about = {"panel": "depth", "what": "up, limit, published", "x": layer / (len(published) - 1)}
        rows.append(about | {"value": share})
    return pd.DataFrame(rows)


def draw_depth(axes: Axes, data: pd.DataFrame, tokens: str) -> None:
    """Draw shares against relative depth."""
    for width, hue in HUE.items():
        rows = pick(data, panel="depth", what=f"up, limit, width {width}, {tokens} tokens")
        draw_means(axes, rows["x"], rows, color=HUES[hue], marker=MARKER[width], ms=4, lw=1, label=f"width {width}")
    rows = pick(data, what="up, limit, published")
    axes.plot(rows["x"].astype(float), rows["value"], color="black", lw=1, label="SmolLM2-135M-Instruct, 4 bits")
    axes.axhline(50, color=PLAIN, lw=0.8, ls=":")
    axes.set_ylim(0, 115)
    axes.set(xlabel="layer, from the first (0) to the last (1)", ylabel="share of $W_u x$ that\nthe token explains (%)")
    axes.legend(fontsize=SMALLEST)


def draw_budget(axes: Axes, data: pd.DataFrame) -> None:
    """Draw means over all layers but the first against the tokens of training."""
    for width, hue in HUE.items():
        rows = pick(data, panel="by budget", what=f"width {width}")
        rows = rows.assign(x=rows["x"].astype(float)).sort_values("x")
        draw_means(axes, rows["x"] / 1e6, rows, color=HUES[hue], marker=MARKER[width], ms=5, label=f"width {width}")
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="by budget")["x"].astype(float).unique() / 1e6)
    axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    axes.set_ylim(0, 100)
    axes.set(xlabel="million tokens of training", ylabel="the same, mean of\nall layers but the first (%)")
    axes.legend(fontsize=SMALLEST)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw two panels."""
    figure, grid = sheet("ab", 3.0, {"a": "What the token explains, by depth", "b": "More training"})
    draw_depth(grid["a"], data, f"{scores.scale.training.tokens:,}")
    draw_budget(grid["b"], data)
    return figure
