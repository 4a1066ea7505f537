"""STEM's lead over dense against the size of the model, and what others measured at 125M to 1B."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.config.recipe import Recipe
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.sizes import LINES, derivative, lead, loss, sizes, table_rate
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    ARM_MARKER,
    BETTER,
    FAINT,
    PLAIN,
    SMALL,
    SMALLEST,
    draw_means,
    look,
    note,
    sheet,
)

STEM = ("stem-third", "stem-half", "stem-full")
COMPARED = ("input-add", "stem-full", "dense-equal-size")
"""Arms that are compared with dense, at the widths that have them."""
TITLES = {"fixed": "Vocabulary fixed", "grown": "Vocabulary grows"}
LEAD = f"loss below dense's\n(% of bits per byte), {BETTER}"


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads at each size in % of dense's bits a byte, how they change along both lines, and others' numbers."""
    rows, recipe = others(scores.catalog.paper), scores.recipe
    for line in LINES:
        for size, arm in product(sizes(scores, line), STEM):
            if not trained(recipe, arm, size.variant):
                continue
            x = float(arm_losses(scores, "dense", size.variant).summary["parameters"]["total"])
            rows.append(mean_row(f"lead, {line}", arm, x, lead(scores, "dense", arm, size.variant)))
            rows.append(mean_row(f"gap, {line}", arm, x, loss(scores, "dense", arm, "prose", at=size.variant)))
        everywhere = [arm for arm in STEM if all(trained(recipe, arm, size.variant) for size in sizes(scores, line))]
        for order, panel in enumerate(("fall", "bend"), 1):
            rows += [
                mean_row(f"{panel}, {line}", arm, "", derivative(scores, ("dense", arm), line, order))
                for arm in everywhere
            ]
    for size in sizes(scores, "fixed"):
        there = [arm for arm in COMPARED if trained(recipe, arm, size.variant)]
        if len(there) > 1:
            rows += [mean_row("compared", arm, size.width, lead(scores, "dense", arm, size.variant)) for arm in there]
    for name in recipe.variants:
        variant = scores.catalog.variants[name]
        if variant.table_rate != 1:
            rows += [
                mean_row("table rate", arm, variant.width, table_rate(scores, "dense", arm, name))
                for arm in recipe.arms_at(name)
            ]
    return pd.DataFrame(rows)


def trained(recipe: Recipe, arm: str, variant: str) -> bool:
    """Tell whether the recipe has an arm at a variant, or at the scale itself."""
    return variant in (recipe.compare_at, *recipe.variants_of(arm))


def others(paper: Paper) -> list[dict]:
    """Return leads that others measured, in % of dense's loss: the paper's at both sizes, and the re-runs'."""
    rows = []
    for arm in ("third", "half", "full"):
        dense, stem = (paper.value(f"fig-5b/{name}/5.45e8") for name in ("dense", f"stem-{arm}"))
        size = paper.value("table-3-350m/dense/total")
        rows.append({"panel": "paper", "what": f"stem-{arm}", "x": 1e9 * size, "value": 100 * (1 - stem / dense)})
    dense, stem = (paper.value(f"fig-1a/{name}/1.0T") for name in ("dense", "stem-third"))
    lead = 100 * (1 - np.log(stem) / np.log(dense))
    size = 1e9 * paper.value("table-3-1b/dense/total")
    rows.append({"panel": "paper", "what": "stem-third", "x": size, "value": lead})
    for column, bits in paper.row("others-loss/dense").items():
        size = 1e9 * paper.value(f"others-loss/parameters/{column}")
        lead = 100 * (1 - paper.value(f"others-loss/stem-half/{column}") / bits)
        rows.append({"panel": "re-runs", "what": "stem-half", "x": size, "value": lead})
    return rows


def draw_leads(axes: Axes, data: pd.DataFrame, line: str) -> None:
    """Draw our leads along a line, and hollow those that others measured at larger sizes."""
    ours = pick(data, panel=f"lead, {line}")
    widest = ours["x"].astype(float).max()
    for arm in STEM:
        leads = pick(ours, what=arm)
        draw_means(axes, leads["x"].astype(float), leads, **look(arm))
        note(axes, ARM_LABEL[arm], (widest, leads["value"].iloc[-1]), (6, 0), color=ARM_COLOUR[arm])
    for panel, marker, whose in (("paper", None, "paper"), ("re-runs", "*", "MoME")):
        for arm, rows in pick(data, panel=panel).groupby("what"):
            x, size = rows["x"].astype(float), 7 if marker else 5
            style = {"color": ARM_COLOUR[arm], "mfc": "white", "marker": marker or ARM_MARKER[arm], "ms": size}
            axes.plot(x, rows["value"], ls="none", **style)
            label = f"{ARM_LABEL[arm]}, {whose}"
            note(axes, label, (x.iloc[-1], rows["value"].iloc[-1]), (6, 0), color=ARM_COLOUR[arm])
    axes.set_xscale("log")
    axes.axvspan(1e6, 1e8, color=FAINT, lw=0)
    words = "no runs; SmolLM2\n(135M) converted,\nnot trained as STEM"
    top = {"va": "top", "transform": axes.get_xaxis_transform()}
    axes.text(1.5e6, 0.99, words, ha="left", fontsize=SMALLEST, color=PLAIN, **top)
    axes.set_xlim(right=6e11)  # room for the marks' names
    axes.set_xticks([1e5, 1e7, 1e9], ["0.1M", "10M", "1B"])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set(xlabel="parameters of dense", ylabel=LEAD)


def draw_compared(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw leads of STEM full, of dense with a row added, and of dense of STEM's size, at the widths that have them."""
    widths = sorted(pick(data, panel="compared")["x"].astype(float).unique())
    for place, arm in enumerate(COMPARED):
        rows = pick(data, panel="compared", what=arm)
        at = np.array([widths.index(float(x)) for x in rows["x"]]) + 0.12 * (place - 1)
        draw_means(axes, at, rows, **look(arm, joined=False), label=ARM_LABEL[arm])
    axes.set_xticks(range(len(widths)), [f"{width * scores.scale.model.width:g}" for width in widths])
    axes.set_xlim(-0.5, len(widths) - 0.5)
    axes.set(xlabel="width", ylabel=LEAD)
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])  # room for the legend


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads along both lines of sizes, and leads next to controls."""
    titles = dict(zip("abc", (*TITLES.values(), "Memory, STEM, equal size"), strict=True))
    figure, grid = sheet("aab;aac", 6.2, titles)
    draw_leads(grid["a"], data, "fixed")
    draw_leads(grid["b"], data, "grown")
    draw_compared(grid["c"], data, scores)
    grid["c"].legend(fontsize=SMALLEST, loc="upper right")
    return figure


def draw_networks(axes: Axes) -> None:
    """Draw a SwiGLU FFN next to STEM's, from the token below to the output above."""
    axes.set(xlim=(0, 10), ylim=(0, 10))
    axes.axis("off")
    for left, name, second, source, colour in (
        (0.0, "SwiGLU", "$W_u$", "x", PLAIN),
        (5.2, "STEM", "row of\ntable $U$", "token id", ARM_COLOUR["stem-full"]),
    ):
        gate, other, middle = left + 1.1, left + 3.5, left + 2.3
        axes.text(middle, 9.7, name, ha="center", va="top", weight="bold", fontsize=SMALL + 1, color=colour)
        for x, y, words, edge in (
            (gate, 3.0, "$W_g$", PLAIN),
            (gate, 4.9, "SiLU", PLAIN),
            (other, 3.0, second, colour),
            (middle, 6.3, "$\\times$", PLAIN),
            (middle, 7.8, "$W_d$", PLAIN),
        ):
            box = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": edge, "lw": 1.6 if edge != PLAIN else 0.8}
            axes.text(x, y, words, ha="center", va="center", fontsize=SMALL, color=edge, bbox=box)
        for x, words in ((gate, "x"), (other, source)):
            axes.text(x, 1.2, words, ha="center", va="center", fontsize=SMALL, color=colour if x == other else PLAIN)
        for start, end in (
            ((gate, 1.6), (gate, 2.5)),
            ((other, 1.6), (other, 2.3)),
            ((gate, 3.5), (gate, 4.4)),
            ((gate, 5.4), (middle - 0.35, 6.1)),
            ((other, 3.7), (middle + 0.35, 6.1)),
            ((middle, 6.7), (middle, 7.3)),
            ((middle, 8.3), (middle, 8.9)),
        ):
            arrow = {"arrowstyle": "-|>", "color": PLAIN, "lw": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", end, start, arrowprops=arrow)


def front(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw what STEM replaces, and its leads along both lines of sizes with others' numbers."""
    titles = {"a": "What STEM replaces", "b": TITLES["fixed"], "c": TITLES["grown"]}
    figure, grid = sheet("abc", 3.3, titles, width_ratios=(1.05, 1.3, 1.2))
    draw_networks(grid["a"])
    for letter, line in zip("bc", LINES, strict=True):
        draw_leads(grid[letter], data, line)
    grid["c"].label_outer()
    return figure
