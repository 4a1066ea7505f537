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
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    GAIN,
    LESS,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect

BEFORE = "prose, before"
WINDOWS = 10
"""Parts of the stage's steps, over each of which training losses are averaged."""
HEADLINE = (
    "Mid-training keeps STEM's lead over dense; new random tables at its start, as in\n"
    "the published code, cost most of that lead on prose"
)
TRAINED = {"dense": ("dense", KEPT), "STEM full": ("stem-full", KEPT), "new tables": ("stem-full", ANEW)}
"""Name, arm and variant of what is drawn along the stage."""


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
    for arm, variant in TRAINED.values():
        tokens = scores.catalog.variant(variant).at(scores.scale).training.tokens
        steps = arm_losses(scores, arm, variant).steps["loss"]
        rows += window_rows(f"training, {variant}", arm, steps, tokens, WINDOWS)
    for stage in stages(scores.catalog, recipe):
        if stage != KEPT:
            rows += [
                mean_row("anew", arm, sightings(scores, stage), anew(scores, arm, "dense", "prose", stage))
                for arm in recipe.arms_at(stage)
            ]
    return pd.DataFrame(rows)


def draw_leads(axes: Axes, data: pd.DataFrame) -> None:
    """Draw leads over dense by kind of text; open markers where tables were drawn anew."""
    places = {name: number for number, name in enumerate((BEFORE, *TEXTS))}
    kept = data[data["panel"].isin([f"lead, {MAIN}", f"lead, {KEPT}"])]
    anew = pick(data, panel=f"lead, {ANEW}")
    lines = [(KEPT, arm, leads) for arm, leads in kept.groupby("what", sort=False)]
    lines += [(ANEW, arm, leads) for arm, leads in anew.groupby("what", sort=False)]
    for shift, (variant, arm, leads) in zip(np.linspace(-0.22, 0.28, len(lines)), lines, strict=True):
        at = leads["x"].map(places).astype(float) + shift
        draw_means(axes, at, leads, **look(arm, hollow=variant == ANEW) | {"ls": "none"})
        words = f"{ARM_LABEL[arm]},\nnew tables" if variant == ANEW else ARM_LABEL[arm].replace(" (", "\n(")
        side, off = ("right", -5) if (variant, arm) == (KEPT, "stem-third") else ("left", 5)
        note(axes, words, (at.iloc[0], leads["value"].iloc[0]), (off, 0), ha=side, color=ARM_COLOUR[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.axvline(0.5, color="#999999", lw=0.6, ls=":")
    axes.set_xlim(left=-0.7)
    axes.set_xticks(range(len(places)), ["prose\nbefore", *(f"{text}\nafter" for text in TEXTS)])
    axes.set_ylabel(GAIN)


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw training losses of the stage: tables kept, and drawn anew."""
    ends = {}
    for name, (arm, variant) in TRAINED.items():
        line = pick(data, panel=f"training, {variant}", what=arm)
        looks = look(arm, hollow=variant == ANEW) | ({"ls": (0, (3, 2))} if variant == ANEW else {})
        draw_means(axes, line["x"].astype(float) / 1000, line, **looks)
        ends[name] = line["value"].iloc[-1], ARM_COLOUR[arm]
    axes.set(xlabel="tokens of the stage (thousands)", ylabel=f"{LESS}, training loss\n(nats/token)")
    name_ends(axes, ends)


def draw_anew(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what tables drawn anew cost at the end of a further stage, against how often it reads a row."""
    line = pick(data, panel="anew", what="stem-full")
    times = line["x"].astype(float)
    draw_means(axes, times, line, **look("stem-full"))
    for at, value in zip(times, line["value"], strict=True):
        note(axes, f"{value:z.2f}", (at, value), (6, 6))
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log", base=2)
    axes.set_xticks(times, [f"{at:,g}" for at in times])
    axes.margins(x=0.12)
    axes.set(xlabel="how often the stage reads a row", ylabel=f"{LESS}, loss above\nkept tables (nats/token)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw leads by text, training losses, and what tables drawn anew cost."""
    titles = {
        "a": "Lead over dense before and after mid-training",
        "b": "Loss on the way",
        "c": "Cost of new tables, STEM full",
    }
    figure, grid = sheet("aa;bc", 5.6, titles)
    draw_leads(grid["a"], data)
    draw_training(grid["b"], data)
    draw_anew(grid["c"], data)
    leads = data[data["what"].isin(("stem-third", "stem-full"))]
    kept, anew = (pick(leads, panel=f"lead, {variant}") for variant in (KEPT, ANEW))
    most = [pick(rows, x="prose").set_index("what")["value"] for rows in (kept, anew)]
    headline(figure, HEADLINE, bool((kept["ci_low"] > 0).all() and (2 * most[1] < most[0]).all()), scores.recipe.title)
    return figure
