"""Mid-training: leads over dense before and after it by kind of text, with tables kept and drawn anew, the loss on the
way, and what tables drawn anew cost after more and more sightings of a row.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures.losses import arm_losses, contrast
from stemrepro.measures.mid_training import ANEW, KEPT, TEXTS, anew, sightings, stages
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick, window_rows
from stemrepro.report.style import ARM_LABEL, GAIN, LESS, draw_means, look, one_legend, sheet
from stemrepro.verdicts.effect import Effect

BEFORE = "prose, before"
WINDOWS = 10
"""Parts of the stage's steps, over each of which training losses are averaged."""
DASHES = {KEPT: "-", ANEW: (0, (3, 2))}


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads over dense by kind of text, losses, and training losses of the stage.

    `x` of training losses is tokens.
    """
    rows, recipe = [], scores.recipe
    for variant, arms in ((MAIN, recipe.arms), (KEPT, recipe.arms), (ANEW, recipe.arms_at(ANEW))):
        dense = arm_losses(scores, "dense", MAIN if variant == MAIN else KEPT)
        texts = {BEFORE: "prose"} if variant == MAIN else {text: text for text in TEXTS}
        for arm in arms:
            losses = arm_losses(scores, arm, variant)
            for name, text in texts.items():
                rows.append(mean_row(f"loss, {variant}", arm, name, Effect(losses.loss(text).to_numpy())))
                if arm != "dense":
                    rows.append(mean_row(f"lead, {variant}", arm, name, contrast(dense, losses, text)))
    for variant in (KEPT, ANEW):
        tokens = scores.catalog.variant(variant).at(scores.scale).training.tokens
        for arm in recipe.arms_at(variant):
            steps = arm_losses(scores, arm, variant).steps["loss"]
            rows += window_rows(f"training, {variant}", arm, steps, tokens, WINDOWS)
    for stage in stages(scores.catalog, recipe):
        if stage != KEPT:
            rows += [
                mean_row("anew", arm, sightings(scores, stage), anew(scores, arm, "dense", "prose", stage))
                for arm in recipe.arms_at(stage)
            ]
    return pd.DataFrame(rows)


def label(arm: str, variant: str) -> str:
    """Return the label of a line."""
    return f"{ARM_LABEL[arm]}, tables anew" if variant == ANEW else ARM_LABEL[arm]


def draw_leads(axes: Axes, data: pd.DataFrame) -> None:
    """Draw leads over dense by kind of text; open markers where tables were drawn anew."""
    places = {name: number for number, name in enumerate((BEFORE, *TEXTS))}
    kept = data[data["panel"].isin([f"lead, {MAIN}", f"lead, {KEPT}"])]
    anew = pick(data, panel=f"lead, {ANEW}")
    lines = [(KEPT, arm, leads) for arm, leads in kept.groupby("what", sort=False)]
    lines += [(ANEW, arm, leads) for arm, leads in anew.groupby("what", sort=False)]
    for shift, (variant, arm, leads) in zip(np.linspace(-0.26, 0.26, len(lines)), lines, strict=True):
        at = leads["x"].map(places).astype(float) + shift
        draw_means(axes, at, leads, **look(arm, hollow=variant == ANEW) | {"ls": "none"}, label=label(arm, variant))
    axes.axhline(0, color="black", lw=0.6)
    axes.axvline(0.5, color="#999999", lw=0.6, ls=":")
    axes.set_xticks(range(len(places)), ["prose\nbefore", *(f"{text}\nafter" for text in TEXTS)])
    axes.set_ylabel(GAIN)


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw training losses of the stage: tables kept, and drawn anew."""
    for variant, dashes in DASHES.items():
        for arm, line in pick(data, panel=f"training, {variant}").groupby("what", sort=False):
            looks = look(arm, hollow=variant == ANEW) | {"ls": dashes}
            draw_means(axes, line["x"].astype(float) / 1000, line, **looks, label=label(arm, variant))
    axes.set(xlabel="tokens of the stage (thousands)", ylabel=f"{LESS}, training loss\n(nats/token)")


def draw_anew(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what tables drawn anew cost at the end of a further stage, against how often it reads a row."""
    for arm, line in pick(data, panel="anew").groupby("what", sort=False):
        draw_means(axes, line["x"], line, **look(arm), label=ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="anew")["x"].astype(float).unique())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlabel="sightings of a row in the stage", ylabel="cost of tables drawn anew (nats/token)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads by text, training losses, and what tables drawn anew cost."""
    titles = {"a": "Lead over dense by kind of text", "b": "Loss on the way", "c": "Cost of tables drawn anew"}
    figure, grid = sheet("aa;bc", 6.4, titles)
    draw_leads(grid["a"], data)
    draw_training(grid["b"], data)
    draw_anew(grid["c"], data)
    one_legend(figure, [grid["b"]], columns=6)
    return figure
