"""Table 3's ablations: every variant's loss against dense, paired, next to the paper's accuracies and the costs."""

import math
import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.audit import granularity, scorer
from stemrepro.measures.comparison import loss
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import cost_rows, draw_forest, draw_robustness, mark_settings, name_rows, robustness_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, BETTER, GAIN, PLAIN, SMALL, headline, note, sheet

HEADLINE = (
    "A table in place of the up-projection, the gate or the down-projection lowers the loss;\n"
    "the paper's accuracy falls where the gate is replaced"
)
PLACES = {
    "stem-third": "up-projection replaced\n(STEM 1/3)",
    "gate-replaced": "gate replaced",
    "down-replaced": "down-projection replaced",
    "stem-dagger": "table added to the\nup-projection (dagger)",
    "stem-shifted": "STEM 1/3, tables one\nlayer further up",
}
"""What a table does in a third of the layers."""
PAPER = {"gate-replaced": "table-3-ablations/gate-replaced", "stem-dagger": "table-3-ablations/stem-dagger"}


def paper_gain(paper: Paper, arm: str) -> float | None:
    """Return the paper's mean accuracy of an arm less dense's, in points; None where the paper has none."""
    row = PAPER.get(arm, f"table-3-350m/{arm}")
    block, _, name = row.partition("/")
    if name not in paper.blocks[block].rows:
        return None
    gain = paper.value(f"{row}/average") - paper.value("table-3-350m/dense/average")
    return None if math.isnan(gain) else gain


def collect(scores: Scores) -> pd.DataFrame:
    """Return gains over dense in loss, the paper's in accuracy, and costs relative to dense's.

    Gains in loss are at the common and at tuned learning rates.
    """
    rows = []
    for arm in scores.recipe.arms:
        rows += cost_rows(scores, arm)
        if arm == "dense":
            continue
        rows.append(mean_row("loss", arm, "common rate", loss(scores, "dense", arm, "prose")))
        rows += robustness_rows(scores, arm)
        gain = paper_gain(scores.catalog.paper, arm)
        if gain is not None:
            rows.append({"panel": "paper", "what": arm, "x": "350M", "value": gain})
    return pd.DataFrame(rows)


def draw_costs(axes: Axes, data: pd.DataFrame, order: list[str]) -> None:
    """Draw FLOPs and parameters of each arm as multiples of dense's."""
    for at, what in enumerate(("FLOPs", "parameters")):
        values = pick(data, panel=what).set_index("what")["value"]
        for place, arm in enumerate(order):
            axes.text(at, place, f"{values[arm]:.2f}", ha="center", va="center", fontsize=8)
    axes.set_xlim(-0.6, 1.6)
    axes.set_xticks([0, 1], ["FLOPs", "all\nparameters"], fontsize=SMALL)
    axes.set_xlabel("times dense's")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw gains over dense by loss, the paper's by benchmarks, and costs."""
    gains = pick(data, panel="loss").sort_values("value", ascending=False)
    order = [*PLACES, *(arm for arm in gains["what"] if arm not in PLACES)]
    titles = {"a": "Ours: gain in prose loss", "b": "The paper's: accuracy", "c": "Costs"}
    figure, grid = sheet("abc", 5.5, titles, sharey=True, width_ratios=(1.25, 1, 0.5))
    loss, accuracy, costs = grid.values()
    draw_forest(loss, gains, order, GAIN, shift=-0.12)
    draw_robustness(loss, data, order, shift=0.2)
    paper = pick(data, panel="paper")
    places = [order.index(arm) for arm in paper["what"]]
    printed = scores.catalog.paper
    checked = set(granularity(printed).query("block == 'table-3-350m'")["row"])  # whose accuracies tell the scorer
    for place, arm, value in zip(places, paper["what"], paper["value"], strict=True):
        mixed = arm in checked and scorer(printed, f"table-3-350m/{arm}") != scorer(printed, "table-3-350m/dense")
        accuracy.plot(value, place, "d", mfc="white" if mixed else "black", mec="black", ms=6)
        words = f"{value:+.1f}{'*' * mixed}"
        note(accuracy, words, (value, place), (0, 9), ha="center")
    accuracy.axvline(0, color="black", lw=0.6)
    accuracy.margins(x=0.1)
    accuracy.set_xlabel(f"accuracy above dense's\n(points, 350M), {BETTER}\n* other scoring than dense")
    mark_settings(loss, data)
    loss.legend(loc="lower right", ncols=2)
    for axes in (loss, accuracy):
        axes.set_ylim(len(order) + 0.2, -0.5)  # room for the legends, so that none of their marks stands in a row
        name_rows(axes, order)
        axes.set_yticks(range(len(order)), [PLACES.get(arm, textwrap.fill(ARM_LABEL[arm], 24)) for arm in order])
        axes.axhline(len(PLACES) - 0.5, color=PLAIN, lw=0.6, ls=":")
    draw_costs(costs, data, order)
    lows = gains.set_index("what")["ci_low"][["stem-third", "gate-replaced", "down-replaced"]]
    fell = pick(paper, what="gate-replaced")["value"] < 0
    headline(figure, HEADLINE, bool((lows > 0).all() and fell.all()), scores.recipe.title)
    return figure
