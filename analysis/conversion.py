"""What a published model's loss rises by where rows take the place of its up-projections: at once, by placement and
with controls, and after a short training. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import conversion
from stemrepro.measures.conversion import STUDY
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import groups
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import HUES, PLAIN, SMALLEST, draw_means, sheet

CONTROLS = {
    "rows": ("rows by token", "orange", "D"),
    "one-row": ("one row for all tokens", "blue", "o"),
    "dealt-anew": ("rows dealt anew", "green", "s"),
    "no-up": ("no up-projection", "purple", "v"),
    "no-ffn": ("no FFN", "grey", "x"),
}
SETS = {
    "third": "STEM 1/3",
    "half": "1/2",
    "full": "all but\nthe first",
    "early": "first\nthird",
    "late": "last\nthird",
}
ARMS = {
    "third-tables": ("STEM 1/3, tables alone", "yellow", "o"),
    "third": ("STEM 1/3", "orange", "D"),
    "third-interpolated": ("STEM 1/3, up-projection fades out", "red", "^"),
    "half": ("STEM 1/2", "green", "s"),
    "full": ("STEM full", "purple", "v"),
}
TOKENS_OF_STEP = 1024


def collect(scores: Scores) -> pd.DataFrame:
    """Return what rows cost by placement, kind and prior, and what is left of it by tokens of training."""
    rows, steps = [], conversion.steps(scores)
    for placement, kind in groups(scores, STUDY, "at-once", "placement", "kind"):
        if placement != "none":
            rows.append(mean_row("at once", kind, placement, conversion.cost(scores, placement, kind)))
    for placement, prior, few in groups(scores, STUDY, "priors", "placement", "prior", "few"):
        best = conversion.of_prior(scores, placement, prior, few)
        rows.append(mean_row(f"prior, {placement}", prior, few, best))
    for arm in ARMS:
        for step in steps:
            rows.append(mean_row("training", arm, step * TOKENS_OF_STEP, conversion.gap(scores, arm, step)))
        rows.append(mean_row("given back", arm, steps[-1], conversion.share_given_back(scores, arm)))
    for step in steps:
        rows.append(mean_row("dense", "gain of training", step * TOKENS_OF_STEP, conversion.gain(scores, step)))
    return pd.DataFrame(rows)


def draw_sets(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what rows and controls cost at once, by set of layers."""
    for shift, (kind, (label, hue, marker)) in enumerate(CONTROLS.items()):
        rows = data[(data["panel"] == "at once") & (data["what"] == kind) & data["x"].isin(SETS)]
        places = [list(SETS).index(name) + 0.12 * (shift - 2) for name in rows["x"]]
        draw_means(axes, places, rows, color=HUES[hue], marker=marker, ms=5, ls="none", label=label)
    axes.set_xticks(range(len(SETS)), list(SETS.values()))
    axes.set_yscale("log")
    axes.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    axes.minorticks_off()
    axes.set(ylabel="loss above dense's,\nat once (nats/token)")
    axes.legend(fontsize=SMALLEST)


def draw_first(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what rows cost in the first layers after layer 0, by how many."""
    rows = pick(data, panel="at once", what="rows")
    rows = rows[rows["x"].astype(str).str.startswith("first ")]
    rows = rows.assign(x=rows["x"].str.removeprefix("first ").astype(int)).sort_values("x")
    draw_means(axes, rows["x"], rows, color=HUES["orange"], marker="D", ms=5)
    axes.axhline(0, color=PLAIN, lw=0.6)
    axes.set_xticks(rows["x"])
    axes.set(xlabel="layers after layer 0 that read rows", ylabel="loss above dense's,\nat once (nats/token)")


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what is left of the cost against the tokens of the training."""
    for arm, (label, hue, marker) in ARMS.items():
        rows = pick(data, panel="training", what=arm)
        x = rows["x"].astype(float) / 1e3
        draw_means(axes, x, rows, color=HUES[hue], marker=marker, ms=5, label=label)
    axes.set_yscale("log")
    axes.set_yticks([1, 3, 10], ["1", "3", "10"])
    axes.minorticks_off()
    axes.set(xlabel="thousand tokens of training", ylabel="loss above dense's of\nthe same tokens (nats/token)")
    axes.set_ylim(0.5, 100)
    axes.legend(fontsize=SMALLEST, loc="upper right")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw three panels."""
    titles = {
        "a": "Rows in place of up-projections, at once",
        "b": "In the first layers",
        "c": "After a short training",
    }
    figure, grid = sheet("aa;bc", 5.8, titles)
    draw_sets(grid["a"], data)
    draw_first(grid["b"], data)
    draw_training(grid["c"], data)
    return figure
