"""The paper's own arithmetic: item counts of its accuracies, parameter totals, item errors, what its gains consist
of.
"""

from itertools import permutations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from stemrepro.measures import audit
from stemrepro.measures.audit import EIGHT, Z95, granularity, item_error
from stemrepro.measures.scores import Scores
from stemrepro.report.results import pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, SMALL, SMALLEST, plt, sheet

BLOCKS = {"table-3-350m": "350M", "table-3-1b": "1B", "table-4": "1B mid-trained"}
TASKS = ("ARC-E", "ARC-C", "BoolQ", "PIQA", "SIQA", "HSwag", "OBQA", "Wino")
FITS = {"true size only": "#0173b2", "padded size only": "#de8f05", "both": "#d9d9d9", "neither": "#b02020"}
HATCHES = {"table-3-350m": None, "table-3-1b": "////", "table-4": "...."}
SAVED = {
    "the model, 1B, 1/3": "table-3-1b/stem-third",
    "the model, 350M, 1/3": "table-3-350m/stem-third",
    "the model, 350M, 1/2": "table-3-350m/stem-half",
    "the model, 350M, full": "table-3-350m/stem-full",
}
GAINS = {"table-3-350m": "#0173b2", "table-3-1b": "#d55e00", "table-4": "#029e73"}


def collect(scores: Scores) -> pd.DataFrame:
    """Return everything that is drawn, a line per number."""
    catalog, rows = scores.catalog, []
    paper, fits = catalog.paper, granularity(catalog.paper)
    kinds = np.select(
        [fits.fits_items & fits.fits_padded, fits.fits_items, fits.fits_padded],
        ["both", "true size only", "padded size only"],
        "neither",
    )

    def add(panel: str, row: str | None, what: str | None, value: float) -> None:
        rows.append({"panel": panel, "row": row, "what": what, "value": value})

    scorers = {row: audit.scorer(paper, row) for row in (fits.block + "/" + fits.row).unique()}
    for row, what in scorers.items():
        add("scorer", row, what, audit.chance(paper, row))
    for block in BLOCKS:
        for row, base in permutations(paper.blocks[block].rows, 2):
            same = scorers[f"{block}/{row}"] == scorers[f"{block}/{base}"] != "neither"
            gain = paper.value(f"{block}/{row}/average") - paper.value(f"{block}/{base}/average")
            add("comparison", f"{block}: {row} - {base}", "one scorer" if same else "two scorers", gain)
    for row in ("table-3-350m/stem-third", "table-3-350m/stem-half", "table-3-350m/stem-full", "table-3-1b/stem-third"):
        add("total", row, "printed", paper.value(f"{row}/total"))
        for name in ("kept", "tensors"):
            add("total", row, name, audit.total(catalog, row, name))
    for row in ("table-3-350m/stem-third", "table-3-350m/stem-full", "table-3-1b/stem-third"):
        dense = audit.counts(catalog, f"{row.split('/')[0]}/dense")["total"]
        add("tables over dense", row, None, audit.counts(catalog, row)["tables"] / dense)
    for block in BLOCKS:
        first, second = (audit.accuracies(paper, f"{block}/{arm}") for arm in ("stem-third", "dense"))
        for task, gain in zip(EIGHT, first - second, strict=True):
            add("gain", block, task, gain)
        for q in [None, *np.linspace(0.05, 0.5, 19)]:
            error = item_error(first, second, audit.items_of(paper), q)
            add("item error", block, "independent" if q is None else f"{q:.3f}", error)
    add("saved", None, "a replaced FFN", audit.ffn_saved(scores))
    add("saved", None, "a replaced layer\n(Table 1, 4,096 tokens)", audit.saved(scores, "llama-3.2-1b"))
    for words, row in SAVED.items():
        add("saved", None, words, audit.flops_saved(scores, row))
    return pd.concat([fits.assign(panel="items", what=kinds), pd.DataFrame(rows)])


def draw_items(axes: Axes, data: pd.DataFrame) -> None:
    """Draw a square per cell of Tables 3 and 4: which item count can have given it."""
    cells = pick(data, panel="items")
    rows = list(dict.fromkeys(zip(cells["block"], cells["row"], strict=True)))
    grid = np.full((len(rows), 8), np.nan)
    for _, cell in cells.iterrows():
        at = rows.index((cell["block"], cell["row"])), EIGHT.index(cell["task"])
        grid[at] = list(FITS).index(cell["what"])
        middle = {"ha": "center", "va": "center", "color": "black" if cell["what"] == "both" else "white"}
        axes.text(at[1], at[0], f"{cell['value']:.2f}", fontsize=SMALLEST, **middle)
    for place in np.argwhere(grid == list(FITS).index("neither")):  # so that they differ in grey too
        axes.add_patch(
            plt.Rectangle((place[1] - 0.5, place[0] - 0.5), 1, 1, fill=False, hatch="////", ec="#7a1616", lw=0)
        )
    axes.imshow(grid, cmap=ListedColormap(list(FITS.values())), vmin=0, vmax=len(FITS) - 1, aspect="auto")
    axes.hlines(np.arange(0.5, len(rows)), -0.5, 7.5, color="white", lw=2)
    axes.vlines(np.arange(0.5, 8), -0.5, len(rows) - 0.5, color="white", lw=2)
    axes.set_xticks(range(8), TASKS, fontsize=SMALL)
    axes.set_yticks(range(len(rows)), [f"{BLOCKS[block]} {ARM_LABEL.get(row, row)}" for block, row in rows])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    scorers = pick(data, panel="scorer").set_index("row")
    for place, (block, row) in enumerate(rows):
        scorer = scorers.loc[f"{block}/{row}"]
        rare = float(f"{1 / scorer['value']:.0e}")  # NaN where no item size explains the row
        by_chance = "" if np.isnan(rare) else f"\nby chance: 1 in {rare:,.0f}"
        axes.text(7.6, place, f"{scorer['what']}{by_chance}", fontsize=SMALLEST, va="center")
    handles = [
        plt.Rectangle(
            (0, 0), 1, 1, fc=colour, ec="#7a1616", lw=0, hatch="////" if what == "neither" else "", label=what
        )
        for what, colour in FITS.items()
    ]
    axes.legend(handles=handles, ncol=4, loc="upper center", bbox_to_anchor=(0.45, -0.1), columnspacing=1.2)


def draw_totals(axes: Axes, data: pd.DataFrame) -> None:
    """Draw printed totals against both ways of counting."""
    totals = pick(data, panel="total").pivot(index="row", columns="what", values="value")
    totals = totals.loc[list(dict.fromkeys(pick(data, panel="total")["row"]))]
    for place, printed in enumerate(totals["printed"]):  # what the printed digits leave open
        ends, label = [1 - 0.005 / printed, 1 + 0.005 / printed], "what the printed digits leave open"
        looks = {"color": "#de8f05", "lw": 7, "solid_capstyle": "butt"}
        axes.plot(ends, [place, place], **looks, label=None if place else label)
    totals = totals.div(totals["printed"], axis=0)
    for column, marker, label in (("kept", "s", "dense + tables"), ("tensors", "o", "tensors that are there")):
        fill = "white" if marker == "s" else "#333333"
        axes.plot(totals[column], range(len(totals)), marker, ms=6, mfc=fill, mec="#333333", label=label)
    axes.axvline(1, color="black", lw=0.8)
    names = [row.split("/") for row in totals.index]
    axes.set_yticks(range(len(totals)), [f"{BLOCKS[block]} {ARM_LABEL[arm]}" for block, arm in names])
    axes.set_ylim(len(totals) + 0.4, -0.5)  # room for the legend
    axes.set_xlabel("counted / printed total")
    axes.legend(loc="lower left")


def draw_errors(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the half width of the 95% interval from the items alone, against how often the two models differ."""
    errors = pick(data, panel="item error")
    curve = errors[(errors["row"] == "table-3-350m") & (errors["what"] != "independent")]
    axes.plot(curve["what"].astype(float), Z95 * curve["value"], color="black", lw=1.3)
    independent = pick(errors, row="table-3-350m", what="independent")["value"].item()
    axes.axhline(Z95 * independent, color="black", lw=0.8, ls=(0, (2, 2)))
    axes.text(0.055, Z95 * independent + 0.02, "the same for independent models", fontsize=SMALLEST, va="bottom")
    for block, name in BLOCKS.items():
        gain = pick(data, panel="gain", row=block)["value"].mean()
        axes.axhline(gain, color=GAINS[block], lw=1.4)
        axes.text(0.055, gain - 0.02, f"{name}: +{gain:.2f}", color=GAINS[block], fontsize=SMALLEST, va="top")
    axes.set(xlabel="share of items only one gets right (assumed)", ylabel="points", ylim=(0, 1.5), xlim=(0.05, 0.5))
    axes.text(0.25, 0.74, "95% half width from\nthe items alone", fontsize=SMALLEST, va="top")


def draw_gain(axes: Axes, data: pd.DataFrame) -> None:
    """Draw STEM 1/3 less dense by task, at 350M, 1B and mid-trained."""
    for shift, (block, name) in zip((-0.27, 0, 0.27), BLOCKS.items(), strict=True):
        gains = pick(data, panel="gain", row=block)
        looks = {"color": GAINS[block], "hatch": HATCHES[block], "edgecolor": "white", "lw": 0}
        axes.bar(np.arange(8) + shift, gains["value"], width=0.25, **looks, label=name)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(range(8), TASKS, fontsize=SMALLEST)
    axes.set_ylabel("STEM 1/3 - dense (points)")
    axes.legend(loc="upper center")


def draw_saved(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the FLOPs saved as shares of an FFN, a layer and a model."""
    shares = pick(data, panel="saved")
    axes.barh(range(len(shares)), shares["value"], color=[ARM_COLOUR["dense"]] * 2 + ["#8c8c8c"] * 4, height=0.65)
    for place, value in enumerate(shares["value"]):
        axes.text(value + 0.5, place, f"{value:.1f}", va="center", fontsize=SMALL)
    axes.set_yticks(range(len(shares)), shares["what"], fontsize=SMALL)
    axes.set_ylim(len(shares) - 0.5, -0.5)
    axes.set(xlabel="FLOPs saved (%)", xlim=(0, 42))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw five panels."""
    titles = {
        "a": "Items of each accuracy",
        "b": "Total parameters",
        "c": "Gains against the item error",
        "d": "What the gains consist of",
        "e": "One third of what?",
    }
    figure, grid = sheet(
        [["a"], [[["b", "c"]]], [[["d", "d", "d", "e", "e"]]]], 8.6, titles, height_ratios=(1.15, 1, 1)
    )
    for letter, drawn in zip("abcde", (draw_items, draw_totals, draw_errors, draw_gain, draw_saved), strict=True):
        drawn(grid[letter], data)
    return figure
