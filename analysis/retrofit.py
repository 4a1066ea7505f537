"""A retrofit: where STEM made of a trained dense model ends next to dense and tables from the start, and the loss on
the way.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.losses import arm_losses, contrast
from stemrepro.measures.retrofit import CONSTANT, INTERPOLATED, MEAN, ROWS, SCRATCH
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick, window_rows
from stemrepro.report.style import ARM_COLOUR, GAIN, LESS, draw_means, headline, look, name_ends, sheet
from stemrepro.verdicts.effect import Effect

HEADLINE = "Converted half-way, STEM keeps about half of its lead over dense in the mean"
WINDOWS = 10
"""Parts of the second stage's steps, over each of which training losses are averaged."""
SHOWN = {
    "dense": ("dense", SCRATCH, "-"),
    "from the start": ("stem-full", SCRATCH, "-"),
    "converted half-way": ("stem-full", ROWS, (0, (4, 1.5))),
    "converted, one row\nfor all tokens": ("stem-full", MEAN, (0, (1.2, 1.2))),
    "converted, interpolated": ("stem-interpolated", INTERPOLATED, "-."),
    "converted, one row,\nnever learns (control)": (CONSTANT, MEAN, ":"),
}
"""Name, arm, variant and dashes of what is drawn."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads over dense at the end, and training losses of the second stage; their `x` is tokens."""
    rows, dense = [], arm_losses(scores, "dense", SCRATCH)
    tokens = scores.catalog.variant(SCRATCH).at(scores.scale).training.tokens
    for arm, variant, _ in SHOWN.values():
        losses = arm_losses(scores, arm, variant)
        if arm != "dense":
            rows.append(mean_row("lead", arm, variant, contrast(dense, losses, "prose")))
        if arm != CONSTANT:
            steps = losses.steps["loss"]
            rows.append(mean_row(f"training, {variant}", arm, 0, Effect(steps[:, 0])))
            rows += window_rows(f"training, {variant}", arm, steps[:, 1:], tokens, WINDOWS)
    return pd.DataFrame(rows)


def draw_leads(axes: Axes, data: pd.DataFrame) -> None:
    """Draw leads over dense, all trained in two stages."""
    names = list(SHOWN)[1:]
    for place, name in enumerate(names):
        arm, variant, _ = SHOWN[name]
        looks = look(arm, hollow=variant != SCRATCH, joined=False)
        draw_means(axes, place, pick(data, panel="lead", what=arm, x=variant), sideways=True, **looks)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(GAIN)


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw training losses of the second stage; the first value is the first batch's, before any step."""
    ends = {}
    axes.margins(y=0.12)  # room for names
    for name, (arm, variant, dashes) in SHOWN.items():
        if arm != CONSTANT:
            line = pick(data, panel=f"training, {variant}", what=arm)
            looks = look(arm, hollow=variant != SCRATCH) | {"ls": dashes}
            draw_means(axes, line["x"].astype(float) / 1000, line, **looks)
            ends[name] = line["value"].iloc[-1], ARM_COLOUR[arm]
    axes.set(xlabel="tokens after the conversion (thousands)", ylabel=f"{LESS}, training loss (nats/token)")
    name_ends(axes, ends, 0.1)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads on the left, training losses on the right."""
    titles = {"a": "Lead of STEM full at the end", "b": "After the conversion"}
    figure, grid = sheet("ab", 3.5, titles, width_ratios=(1, 1.3))
    draw_leads(grid["a"], data)
    draw_training(grid["b"], data)
    leads = pick(data, panel="lead", what="stem-full").set_index("x")["value"]
    headline(figure, HEADLINE, bool(0.4 < leads[ROWS] / leads[SCRATCH] < 0.6), scores.recipe.title)
    return figure
