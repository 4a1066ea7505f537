"""Table 3's ablations: every variant's loss against dense, paired, next to the paper's accuracies and the costs."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.comparison import loss
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import cost_rows, draw_forest, draw_robustness, mark_settings, name_rows, robustness_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import BETTER, GAIN, SMALL, sheet

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
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw gains over dense by loss, the paper's by benchmarks, and costs."""
    gains = pick(data, panel="loss").sort_values("value", ascending=False)
    order = list(gains["what"])
    titles = {"a": "Gain in prose loss", "b": "The paper's in accuracy", "c": "x dense's"}
    figure, grid = sheet("abc", 5.5, titles, sharey=True, width_ratios=(1.25, 1, 0.5))
    loss, accuracy, costs = grid.values()
    draw_forest(loss, gains, order, GAIN, shift=-0.12)
    draw_robustness(loss, data, order, shift=0.2)
    paper = pick(data, panel="paper")
    places = [order.index(arm) for arm in paper["what"]]
    accuracy.plot(paper["value"], places, "d", mfc="white", mec="black", ms=6)
    accuracy.axvline(0, color="black", lw=0.6)
    accuracy.set_xlabel(f"accuracy above dense's\n(points, 350M), {BETTER}")
    mark_settings(loss, data)
    loss.legend(loc="lower right", ncols=2)
    for axes in (loss, accuracy):
        axes.set_ylim(len(order) + 0.2, -0.5)  # room for the legends, so that none of their marks stands in a row
        name_rows(axes, order)
    draw_costs(costs, data, order)
    return figure
