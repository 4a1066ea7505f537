"""A retrofit: where STEM made of a trained dense model ends next to dense and tables from the start, and the loss on
the way.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures.losses import arm_losses, contrast
from stemrepro.measures.retrofit import INTERPOLATED, MEAN, ROWS, SCRATCH
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick, window_rows
from stemrepro.report.style import ARM_LABEL, GAIN, LESS, draw_means, look, one_legend, sheet
from stemrepro.verdicts.effect import Effect

PLACES = {
    MAIN: "from the\nstart, one\nstage",
    SCRATCH: "from the\nstart",
    ROWS: "of dense:\nmeans",
    MEAN: "of dense:\nmean row",
    INTERPOLATED: "of dense:\ninterpo-\nlated",
}
WINDOWS = 10
"""Parts of the second stage's steps, over each of which training losses are averaged."""
SHOWN = (
    ("dense", SCRATCH),
    ("stem-full", SCRATCH),
    ("stem-full", ROWS),
    ("stem-full", MEAN),
    ("stem-interpolated", INTERPOLATED),
)
"""Arms and variants whose training losses are drawn."""
DASHES = {SCRATCH: "-", ROWS: (0, (4, 1.5)), MEAN: (0, (1.2, 1.2)), INTERPOLATED: "-."}
WORDS = {SCRATCH: "", ROWS: ", made of dense: means", MEAN: ", made of dense: mean row", INTERPOLATED: ", from dense"}


def collect(scores: Scores) -> pd.DataFrame:
    """Return losses and leads over dense at the end, and training losses of the second stage.

    `x` of training losses is tokens, and 0 for the first batch.
    """
    recipe = scores.recipe
    arms = {MAIN: recipe.arms} | {variant: recipe.arms_at(variant) for variant in DASHES}
    rows, dense = [], arm_losses(scores, "dense", SCRATCH)
    for variant in PLACES:
        for arm in arms[variant]:
            losses = arm_losses(scores, arm, variant)
            rows.append(mean_row("loss", arm, variant, Effect(losses.loss("prose").to_numpy())))
            if arm != "dense":
                rows.append(mean_row("lead", arm, variant, contrast(dense, losses, "prose")))
    rows.append(mean_row("lead", "dense", MAIN, contrast(dense, arm_losses(scores, "dense", MAIN), "prose")))
    tokens = scores.catalog.variant(SCRATCH).at(scores.scale).training.tokens
    for variant in DASHES:
        for arm in arms[variant]:
            steps = arm_losses(scores, arm, variant).steps["loss"]
            rows.append(mean_row(f"training, {variant}", arm, 0, Effect(steps[:, 0])))
            rows += window_rows(f"training, {variant}", arm, steps[:, 1:], tokens, WINDOWS)
    return pd.DataFrame(rows)


def draw_leads(axes: Axes, data: pd.DataFrame) -> None:
    """Draw leads over dense in two stages, by how the model came to its tables."""
    places, leads = {variant: number for number, variant in enumerate(PLACES)}, pick(data, panel="lead")
    groups = list(leads.groupby("what", sort=False))
    for shift, (arm, arm_leads) in zip(np.linspace(-0.15, 0.15, len(groups)), groups, strict=True):
        at = arm_leads["x"].map(places).astype(float) + shift
        draw_means(axes, at, arm_leads, **look(arm, joined=False), label=ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(range(len(places)), PLACES.values())
    axes.set_ylabel(GAIN)
    axes.legend(loc="best")


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw training losses of the second stage; the first value is the first batch's, before any step."""
    for arm, variant in SHOWN:
        line = pick(data, panel=f"training, {variant}", what=arm)
        looks = look(arm, hollow=variant != SCRATCH) | {"ls": DASHES[variant]}
        draw_means(axes, line["x"].astype(float) / 1000, line, **looks, label=ARM_LABEL[arm] + WORDS[variant])
    axes.set(xlabel="tokens of the second stage (thousands)", ylabel=f"{LESS}, training loss (nats/token)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads on the left, training losses on the right."""
    figure, grid = sheet("ab", 3.7, {"a": "Lead over dense in two stages", "b": "After the retrofit"})
    draw_leads(grid["a"], data)
    draw_training(grid["b"], data)
    one_legend(figure, [grid["b"]], columns=2)
    return figure
