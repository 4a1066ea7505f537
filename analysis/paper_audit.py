"""The paper's own arithmetic: which numbers of test items can have given its accuracies, and which gains compare
rows that are scored alike.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from stemrepro.measures import audit
from stemrepro.measures.audit import EIGHT, Z95, granularity, item_error
from stemrepro.measures.scores import Scores
from stemrepro.report.results import pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    PLAIN,
    SMALL,
    headline,
    note,
    plt,
    sheet,
)

BLOCKS = {"table-3-350m": "350M", "table-3-1b": "1B", "table-4": "1B mid-trained"}
TASKS = ("ARC-E", "ARC-C", "BoolQ", "PIQA", "SIQA", "HSwag", "OBQA", "Wino")
FITS = {"the test's items": "#484848", "a padded number": "#bda6dc", "both": "#ececec", "neither": "#8c1d1d"}
"""Colours of the numbers of items that can have given an accuracy; a padded one is the next multiple of 128."""
SCORERS = {"true sizes": "the test's items", "padded sizes": "padded numbers", "neither": "neither"}
ALIKE, UNLIKE = "one scorer", "two scorers"


def collect(scores: Scores) -> pd.DataFrame:
    """Return everything that is drawn or cited, a line per number."""
    catalog, rows = scores.catalog, []
    paper, fits = catalog.paper, granularity(catalog.paper)
    kinds = np.select(
        [fits.fits_items & fits.fits_padded, fits.fits_items, fits.fits_padded],
        ["both", "the test's items", "a padded number"],
        "neither",
    )

    def add(panel: str, row: str | None, what: str | None, value: float) -> None:
        rows.append({"panel": panel, "row": row, "what": what, "value": value})

    scorers = {row: audit.scorer(paper, row) for row in (fits.block + "/" + fits.row).unique()}
    for row, what in scorers.items():
        add("scorer", row, what, audit.chance(paper, row))
        dense = f"{row.split('/')[0]}/dense"
        if row != dense:
            what = ALIKE if what == scorers[dense] != "neither" else UNLIKE
            add("gain", row, what, paper.value(f"{row}/average") - paper.value(f"{dense}/average"))
    for row in ("table-3-350m/stem-third", "table-3-350m/stem-full", "table-3-1b/stem-third"):
        dense = audit.counts(catalog, f"{row.split('/')[0]}/dense")["total"]
        add("tables over dense", row, None, audit.counts(catalog, row)["tables"] / dense)
    for block in BLOCKS:
        first, second = (audit.accuracies(paper, f"{block}/{arm}") for arm in ("stem-third", "dense"))
        add("item error", block, "independent", item_error(first, second, audit.items_of(paper), None))
    return pd.concat([fits.assign(panel="items", what=kinds), pd.DataFrame(rows)])


def name_of(row: str) -> str:
    """Return the name of a model of the paper, from "table-3-1b/dense"."""
    block, arm = row.split("/")
    return f"{BLOCKS[block]} {ARM_LABEL.get(arm, arm)}"


def draw_items(axes: Axes, data: pd.DataFrame) -> None:
    """Draw a square per accuracy of Tables 3 and 4: which size of the test can have given it."""
    cells, scorers = pick(data, panel="items"), pick(data, panel="scorer").set_index("row")
    rows, grid = list(scorers.index), np.full((len(scorers), 8), np.nan)
    for _, cell in cells.iterrows():
        at = rows.index(f"{cell['block']}/{cell['row']}"), EIGHT.index(cell["task"])
        grid[at] = list(FITS).index(cell["what"])
        colour = "black" if cell["what"] in ("both", "a padded number") else "white"
        axes.text(*at[::-1], f"{cell['value']:.2f}", fontsize=SMALL, ha="center", va="center", color=colour)
    for place in np.argwhere(grid == list(FITS).index("neither")):  # so that they differ in grey too
        corner = place[1] - 0.5, place[0] - 0.5
        axes.add_patch(plt.Rectangle(corner, 1, 1, fill=False, hatch="////", ec="#c25050", lw=0))
    axes.imshow(grid, cmap=ListedColormap(list(FITS.values())), vmin=0, vmax=len(FITS) - 1, aspect="auto")
    axes.hlines(np.arange(0.5, len(rows)), -0.5, 7.5, color="white", lw=2)
    axes.vlines(np.arange(0.5, 8), -0.5, len(rows) - 0.5, color="white", lw=2)
    axes.set_xticks(range(8), TASKS, fontsize=SMALL)
    axes.set_yticks(range(len(rows)), [name_of(row) for row in rows])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for place, (what, chance) in enumerate(zip(scorers["what"], scorers["value"], strict=True)):
        rare = float(f"{1 / chance:.0e}")  # NaN where no size explains the row
        by_chance = "" if np.isnan(rare) else f"\nby chance: 1 in {rare:,.0f}"
        note(axes, f"{SCORERS[what]}{by_chance}", (7.6, place), (0, 0), fontsize=SMALL, annotation_clip=False)
    hatches = {"neither": "////"}
    handles = [
        plt.Rectangle((0, 0), 1, 1, fc=colour, ec="#c25050", lw=0, hatch=hatches.get(what), label=what)
        for what, colour in FITS.items()
    ]
    title = "the accuracy is a whole number of right answers out of"
    axes.legend(handles=handles, title=title, ncol=4, loc="upper center", bbox_to_anchor=(0.5, -0.06))


def draw_gains(axes: Axes, data: pd.DataFrame) -> None:
    """Draw printed gains over dense, hollow where rows are scored unlike, and what unrelated models may differ."""
    gains, chance = pick(data, panel="gain"), Z95 * pick(data, panel="item error")["value"].max()
    for place, (row, what, gain) in enumerate(zip(gains["row"], gains["what"], gains["value"], strict=True)):
        colour = ARM_COLOUR[row.split("/")[1]]
        axes.barh(place, gain, 0.6, fc=colour if what == ALIKE else "white", ec=colour)
        words = "scored as dense is" if what == ALIKE else "scored in another way than dense"
        note(axes, f"{gain:+.2f}, {words}", (max(gain, chance), place), (4, 0))
    axes.axvline(chance, color=PLAIN, ls=":")
    words = f"two models with unrelated answers differ by up to {chance:.2f} by chance (95%)"
    note(axes, words, (chance, len(gains) - 0.25), (4, 0), color=PLAIN)
    axes.set_yticks(range(len(gains)), [name_of(row) for row in gains["row"]])
    axes.set(ylim=(len(gains) + 0.1, -0.5), xlim=(0, 1.5 * gains["value"].max()))
    axes.set_xlabel(f"mean accuracy of eight tasks minus dense's (points), {BETTER}")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw what can have given each accuracy, and below it which gains compare rows that are scored alike."""
    titles = {
        "a": "Accuracies (%): shares of right answers among how many?",
        "b": "Printed gains over dense",
    }
    figure, grid = sheet("a;b", 6.6, titles, height_ratios=(1.5, 1))
    draw_items(grid["a"], data)
    draw_gains(grid["b"], data)
    gains = pick(data, panel="gain").set_index("row")
    unlike = gains.loc[["table-3-350m/stem-full", "table-3-350m/stem-half"]]
    alike = gains.loc[["table-3-350m/stem-third", "table-3-1b/stem-third"]]
    message = (
        "The paper's Table 3 seems to mix two ways of scoring: gains of {:.1f} and {:.1f} points\n"
        "compare rows scored differently; scored alike, STEM 1/3 gains {:.1f} (350M), {:.1f} (1B)"
    )
    shown = (unlike["what"] == UNLIKE).all() and (alike["what"] == ALIKE).all()
    headline(figure, message.format(*unlike["value"], *alike["value"]), bool(shown), scores.recipe.title)
    return figure
