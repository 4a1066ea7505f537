"""STEM's lead over dense against a model's width, vocabulary and depth, and what others measured at 125M to 1B."""

from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.config.recipe import Recipe
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.sizes import LINES, along, derivative, lead, loss, sizes, table_rate
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    ARM_MARKER,
    BETTER,
    FAINT,
    PLAIN,
    SMALL,
    draw_means,
    headline,
    ink,
    look,
    name_ends,
    note,
    sheet,
)

STEM = ("stem-third", "stem-half", "stem-full")
COMPARED = {
    "input-add": "dense + a row\nper token",
    "stem-full": "STEM full",
    "dense-equal-size": "dense as large\nas STEM full",
}
"""Arms that are compared with dense, at the widths that have them, with names."""
Axis = Literal["vocab", "layers"]
AXES: dict[Axis, str] = {"vocab": "pieces of the vocabulary", "layers": "layers"}
"""What else differs, at the scale's own width, with its name in the figure."""
HEADLINE = "STEM full wins at equal training, not at equal size;\nlarger models, which others trained, gain less"
LEADS = "STEM leads dense in the mean at every size here; in larger models, which others trained,\nits lead is smaller"
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
        if {"stem-full", "dense-equal-size"} <= set(there):  # both may have more seeds than dense
            direct = loss(scores, "stem-full", "dense-equal-size", "prose", at=size.variant)
            rows.append(mean_row("equal size", "dense-equal-size", size.width, direct))
    for axis in AXES:
        for x, name in along(scores, axis).items():
            there = [arm for arm in STEM if trained(recipe, arm, name)]
            rows += [mean_row(f"lead, {axis}", arm, x, lead(scores, "dense", arm, name)) for arm in there]
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


def draw_leads(axes: Axes, data: pd.DataFrame, line: str) -> float:
    """Draw our leads along a line of sizes, and return the largest."""
    ours = pick(data, panel=f"lead, {line}")
    widest = ours["x"].astype(float).max()
    for arm in STEM:
        leads = pick(ours, what=arm)
        if len(leads) == 1:  # no line
            continue
        x, last = leads["x"].astype(float), leads["value"].iloc[-1]
        draw_means(axes, x, leads, **look(arm))
        axes.plot([x.iloc[-1], widest], [last, last], color=ARM_COLOUR[arm], lw=0.5, ls=":")  # to its name
        note(axes, ARM_LABEL[arm], (widest, last), (6, 0), color=ARM_COLOUR[arm])
    axes.set_xscale("log")
    axes.set(xlabel="parameters of dense", ylabel=LEAD)
    return float(widest)


def draw_sizes(axes: Axes, data: pd.DataFrame) -> None:
    """Draw our leads at one vocabulary, and hollow those that others measured at larger sizes."""
    widest = draw_leads(axes, data, "fixed")
    for panel, marker, whose in (("paper", None, "paper"), ("re-runs", "*", "MoME")):
        for arm, rows in pick(data, panel=panel).groupby("what"):
            x, size = rows["x"].astype(float), 7 if marker else 5
            style = {"color": ARM_COLOUR[arm], "mfc": "white", "marker": marker or ARM_MARKER[arm], "ms": size}
            axes.plot(x, rows["value"], ls="none", **style)
            label = f"{ARM_LABEL[arm]}, {whose}"
            if whose == "MoME":  # the paper's marks are of two measures
                axes.plot(x, rows["value"], color=ARM_COLOUR[arm], lw=0.5, ls=":")
            note(axes, label, (x.iloc[-1], rows["value"].iloc[-1]), (6, 0), color=ARM_COLOUR[arm])
    axes.axvspan(max(1e6, 1.5 * widest), 1e8, color=FAINT, lw=0)
    note(axes, "no runs", (1e7, 0.95), (0, 0), xycoords=axes.get_xaxis_transform(), color=PLAIN, ha="center")
    axes.set_xlim(right=6e11)  # room for the marks' names
    axes.set_xticks([1e5, 1e7, 1e9], ["0.1M", "10M", "1B"])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)


def draw_along(axes: Axes, data: pd.DataFrame, axis: Axis) -> None:
    """Draw leads at the scale's own width against the vocabulary or the layers."""
    rows, ends = pick(data, panel=f"lead, {axis}"), {}
    for arm, leads in rows.groupby("what"):
        x = leads["x"].astype(float)
        if len(x) > 1:
            draw_means(axes, x, leads, **look(arm))
            ends[ARM_LABEL[arm]] = leads["value"].iloc[-1], ARM_COLOUR[arm]
    ticks = sorted(rows["x"].astype(float).unique())
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel=AXES[axis], ylabel=LEAD, ylim=(0, None))
    name_ends(axes, ends, 0.16)


def draw_compared(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw leads of STEM full, of dense with a row added, and of dense of STEM's size, at the widths that have them."""
    widths, ends = sorted(pick(data, panel="compared")["x"].astype(float).unique()), {}
    for place, (arm, name) in enumerate(COMPARED.items()):
        rows = pick(data, panel="compared", what=arm)
        at = np.array([widths.index(float(x)) for x in rows["x"]]) + 0.12 * (place - 1)
        draw_means(axes, at, rows, **look(arm, joined=False))
        ends[name] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    axes.set_xticks(range(len(widths)), [f"{width * scores.scale.model.width:g}" for width in widths])
    axes.set_xlim(-0.5, len(widths) - 0.5)
    axes.set(xlabel="width", ylabel=LEAD)
    axes.set_ylim(bottom=0)
    name_ends(axes, ends, 0.16)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads along both lines of sizes, and leads next to controls."""
    titles = {
        "a": "One vocabulary (hollow: trained by others)",
        "b": "Vocabulary grows with the width",
        "c": "Next to other dense models",
        "d": "Width {width}, other vocabularies",
        "e": "Width {width}, other depths",
    }
    titles = {letter: title.format(width=scores.scale.model.width) for letter, title in titles.items()}
    figure, grid = sheet([["a"], [[["b", "c"], ["d", "e"]]]], 8.4, titles, height_ratios=(1.2, 2))
    draw_sizes(grid["a"], data)
    grid["a"].set_xlim(right=3e10)
    draw_leads(grid["b"], data, "grown")
    ticks = [5e4, 1e5, 2e5, 5e5, 1e6]
    low, high = grid["b"].get_xlim()
    grid["b"].set_xticks(ticks, [f"{tick / 1e6:g}M" for tick in ticks])
    grid["b"].set(xlim=(low, 2 * high), ylim=(0, None))  # room for names
    grid["b"].minorticks_off()
    draw_compared(grid["c"], data, scores)
    for letter, axis in zip("de", AXES, strict=True):
        draw_along(grid[letter], data, axis)
    ours = data[data["panel"].isin([f"lead, {line}" for line in (*LINES, *AXES)])]
    headline(figure, LEADS, bool((ours["ci_low"] > 0).all() and less_elsewhere(data)), scores.recipe.title)
    return figure


def less_elsewhere(data: pd.DataFrame) -> bool:
    """Say whether every lead that others measured is below all of ours of the same arm at one vocabulary."""
    theirs = data[data["panel"].isin(["paper", "re-runs"])].groupby("what")["value"].max()
    least = pick(data, panel="lead, fixed").groupby("what")["value"].min()
    return bool((theirs < least.reindex(theirs.index)).all())


def draw_equations(axes: Axes) -> None:
    """Write a SwiGLU FFN's equation and STEM's, with what differs in a box."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    for left, name, up, colour in (
        (0.0, "Dense FFN", "$W_u\\,x$", "black"),
        (0.5, "STEM", "row of the token", ARM_COLOUR["stem-full"]),
    ):
        box = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": colour, "lw": 1.4}
        parts = (
            (name, {"weight": "bold", "color": ink(colour)}),
            ("$W_d\\,($SiLU$(W_g\\,x)\\;\\times$", {}),
            (up, {"color": ink(colour), "bbox": box}),
            (")", {}),
        )
        place = {"xy": (left, 0.5), "xycoords": "data"}
        for words, looks in parts:
            looks |= {"textcoords": "offset points", "xytext": (9, 0), "fontsize": SMALL + 1.5}
            written = axes.annotate(words, **place, **looks, va="center")
            place = {"xy": (1, 0.5), "xycoords": written}


def draw_bars(axes: Axes, data: pd.DataFrame) -> pd.DataFrame:
    """Draw leads over dense at width 32 as bars, and return them: equal size, STEM full, dense with a row per token."""
    rows = pick(data, panel="compared")
    rows = rows[rows["x"].astype(float) == 1].set_index("what")
    names = {
        "dense-equal-size": "dense model\nas large as\nSTEM full",
        "stem-full": "STEM full",
        "input-add": "dense +\na row per\ntoken",
    }
    for place, arm in enumerate(names):
        row = rows.loc[arm]
        axes.barh(place, row["value"], height=0.55, color=ARM_COLOUR[arm])
        for colour, thick in (("white", 3), ("black", 1)):  # seen on dark bars too
            draw_means(axes, place, row, sideways=True, color=colour, ls="none", lw=thick)
        note(axes, f"{row['value']:.1f}%", (row["ci_high"], place), (5, 0), fontsize=SMALL + 1, weight="bold")
    axes.set_yticks(range(len(names)), list(names.values()), fontsize=SMALL + 0.5)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel=f"loss below dense's (%), {BETTER}", xlim=(0, 10.5))
    return rows


def front(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw what STEM replaces, its lead next to two controls, and its lead at every size with a number."""
    dense = float(arm_losses(scores, "dense", scores.recipe.compare_at).summary["parameters"]["total"])
    titles = {"a": f"At {dense / 1e6:.2f}M parameters", "b": "At every size that was measured"}
    figure, grid = sheet("cc;ab", 3.9, titles, width_ratios=(1, 1.1), height_ratios=(0.16, 1))
    bars = draw_bars(grid["a"], data)
    direct = pick(data, panel="equal size")
    direct = direct[direct["x"].astype(float) == 1].iloc[0]
    words = (
        f"dense of its size ends {direct['value']:.3f} nats below STEM full\n"
        f"({direct['ci_low']:.3f} to {direct['ci_high']:.3f}, {direct['count']:.0f} pairs of runs)"
    )
    note(grid["a"], words, (0, 1.5), (4, 0), color=PLAIN)
    summaries = [arm_losses(scores, arm, scores.recipe.compare_at).summary for arm in ("dense-equal-size", "stem-full")]
    large, small = (summary["forward_flops_per_token"] for summary in summaries)
    note(grid["a"], f"{large / small:.1f} x STEM full's FLOPs", (0, 0), (5, 0), color="white")
    shown = direct["ci_low"] > 0 and bars.loc["stem-full", "ci_low"] > 0
    headline(figure, HEADLINE, bool(shown and less_elsewhere(data)), scores.recipe.title)
    draw_equations(grid["c"])
    axes = grid["b"]
    draw_sizes(axes, data)
    axes.plot(135e6, 0, ls="none", marker="v", color=PLAIN, ms=7, clip_on=False)
    note(axes, "SmolLM2-135M, converted\nby rows: worse", (135e6, 0), (-6, 12), color=PLAIN, ha="right")
    return figure
