"""Mid-training: leads over dense before and after it by kind of text, with tables kept and drawn anew, the loss on the
way, and what tables drawn anew cost after more and more sightings of a row.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures.losses import contrast
from stemrepro.measures.mid_training import ANEW, FURTHER, KEPT, TEXTS, MidTraining
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_LABEL, GAIN, LESS, error_bars, look, one_legend, sheet
from stemrepro.verdicts.contrast import Contrast

BEFORE = "prose, before"
WINDOWS = 10
"""Parts of the stage's steps, over each of which training losses are averaged."""
DASHES = {KEPT: "-", ANEW: (0, (3, 2))}


def collect(measure: MidTraining) -> pd.DataFrame:
    """Return leads over dense by kind of text, losses, and training losses of the stage.

    `x` of training losses is tokens.
    """
    rows, arms = [], measure.arms
    for variant, texts in ((MAIN, ("prose",)), (KEPT, TEXTS), (ANEW, TEXTS)):
        dense = arms[MAIN if variant == MAIN else KEPT]["dense"]
        for arm, losses in arms[variant].items():
            for text in texts:
                name = BEFORE if variant == MAIN else text
                rows.append(mean_row(f"loss, {variant}", arm, name, Contrast(losses.loss(text).to_numpy())))
                if arm != "dense":
                    rows.append(mean_row(f"lead, {variant}", arm, name, contrast(dense, losses, text)))
    for variant in (KEPT, ANEW):
        tokens = measure.inputs.catalog.variant(variant).at(measure.inputs.scale).training.tokens
        for arm, losses in arms[variant].items():
            steps = losses.steps["loss"]
            windows = np.array_split(steps, min(WINDOWS, steps.shape[1]), axis=1)
            rows += [
                mean_row(f"training, {variant}", arm, tokens * (k + 0.5) / len(windows), Contrast(part.mean(axis=1)))
                for k, part in enumerate(windows)
            ]
    for stage in (name for name in arms if name.startswith(FURTHER) and f"{name}-anew" in arms):
        for arm in arms[stage]:
            rows.append(
                mean_row("anew", arm, measure.sightings(stage), measure.lost_anew(arm, "dense", "prose", stage))
            )
    return pd.DataFrame(rows)


def label(arm: str, variant: str) -> str:
    """Return the label of a line."""
    return f"{ARM_LABEL[arm]}, tables anew" if variant == ANEW else ARM_LABEL[arm]


def draw_leads(axes: Axes, data: pd.DataFrame) -> None:
    """Draw leads over dense by kind of text; open markers where tables were drawn anew."""
    places = {name: number for number, name in enumerate((BEFORE, *TEXTS))}
    kept = data[data["panel"].isin([f"lead, {MAIN}", f"lead, {KEPT}"])]
    anew = data[data["panel"] == f"lead, {ANEW}"]
    lines = [(KEPT, arm, leads) for arm, leads in kept.groupby("what", sort=False)]
    lines += [(ANEW, arm, leads) for arm, leads in anew.groupby("what", sort=False)]
    for shift, (variant, arm, leads) in zip(np.linspace(-0.26, 0.26, len(lines)), lines, strict=True):
        at = leads["x"].map(places).astype(float) + shift
        axes.errorbar(at, leads["value"], yerr=error_bars(leads), **look(arm, hollow=variant == ANEW) | {"ls": "none"},
                      label=label(arm, variant))  # fmt: skip
    axes.axhline(0, color="black", lw=0.6)
    axes.axvline(0.5, color="#999999", lw=0.6, ls=":")
    axes.set_xticks(range(len(places)), ["prose\nbefore", *(f"{text}\nafter" for text in TEXTS)])
    axes.set_ylabel(GAIN)


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw training losses of the stage: tables kept, and drawn anew."""
    for variant, dashes in DASHES.items():
        for arm, line in data[data["panel"] == f"training, {variant}"].groupby("what", sort=False):
            axes.errorbar(
                line["x"].astype(float) / 1000, line["value"], yerr=error_bars(line),
                **look(arm, hollow=variant == ANEW) | {"ls": dashes}, label=label(arm, variant),
            )  # fmt: skip
    axes.set(xlabel="tokens of the stage (thousands)", ylabel=f"{LESS}, training loss\n(nats/token)")


def draw_anew(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what tables drawn anew cost at the end of a further stage, against how often it reads a row."""
    for arm, line in data[data["panel"] == "anew"].groupby("what", sort=False):
        axes.errorbar(line["x"].astype(float), line["value"], yerr=error_bars(line), **look(arm), label=ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log", base=2)
    ticks = sorted(data[data["panel"] == "anew"]["x"].astype(float).unique())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlabel="sightings of a row in the stage", ylabel="cost of tables drawn anew (nats/token)")


def draw(data: pd.DataFrame, measure: MidTraining) -> Figure:
    """Draw leads by text, training losses, and what tables drawn anew cost."""
    titles = {"a": "Lead over dense by kind of text", "b": "Loss on the way", "c": "Cost of tables drawn anew"}
    figure, grid = sheet("aa;bc", 6.4, titles)
    draw_leads(grid["a"], data)
    draw_training(grid["b"], data)
    draw_anew(grid["c"], data)
    one_legend(figure, [grid["b"]], columns=6)
    return figure
