"""STEM's lead over dense against the size of the model: one GPU's ten minutes beyond the ladder of widths.

The ladder's points are at 9 tokens a parameter of dense, the GPU's at 5.6 and at 3 (width 384, one seed).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN
from stemrepro.measures.base import scores_of
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.sizes import lead, sizes
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, BETTER, SMALL, draw_means, look, sheet
from stemrepro.verdicts.effect import Effect, unpaired

STEM = ("stem-third", "stem-full")
LADDER = ("size_ladder", "width")
"""The recipe and the scale of the narrower models; the line whose vocabulary grows is this scale's."""


def ladder(scores: Scores) -> Scores | None:
    """Return the scores of the narrower models; None where they are not here."""
    name, scale = LADDER
    folder = scores.folder.parent / scale
    return scores_of(name, scores.catalog, scale, folder) if folder.exists() else None


def row(panel: str, arm: str, scores: Scores, variant: str) -> dict:
    """Return a line of data.csv: the lead at a size, against the parameters of dense there."""
    x = float(arm_losses(scores, "dense", variant).summary["parameters"]["total"])
    gain = lead(scores, "dense", arm, variant)
    alone = {"ci_low": np.nan, "ci_high": np.nan} if gain.seeds == 1 else {}
    return mean_row(panel, arm, x, gain) | alone


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads in % of dense's bits a byte, and by how many points that at the widest of the ladder is passed."""
    rows, narrower = [], ladder(scores)
    for arm in STEM:
        rows += [row("gpu", arm, scores, variant) for variant in (MAIN, *scores.recipe.variants_of(arm))]
        if narrower:
            rows += [row("ladder", arm, narrower, size.variant) for size in sizes(narrower, "grown")]
            rows.append(mean_row("beyond", arm, "", beyond(scores, narrower, arm)))
    return pd.DataFrame(rows)


def beyond(scores: Scores, narrower: Scores, arm: str) -> Effect:
    """Return the lead here less that at the widest model of the ladder, in points; two samples."""
    widest = sizes(narrower, "grown")[-1].variant
    return unpaired(lead(scores, "dense", arm).differences, lead(narrower, "dense", arm, widest).differences)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the leads against the size of dense; the ladder's hollow, joined by a line."""
    figure, grid = sheet("a", 3.4, {})
    axes = grid["a"]
    for arm in STEM:
        for panel, label in (("ladder", "_"), ("gpu", ARM_LABEL[arm])):
            rows = pick(data, panel=panel, what=arm)
            kind = look(arm, hollow=panel == "ladder") | ({} if panel == "ladder" else {"ls": "none"})
            draw_means(axes, rows["x"], rows, label=label, **kind)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log")
    axes.set(xlabel="parameters of dense", ylabel=f"loss below dense's\n(% of bits per byte), {BETTER}")
    axes.set_title("Hollow: 9 tokens a parameter, widths 16 to 48; filled: fewer, width 256 and more", fontsize=SMALL)
    axes.legend(fontsize=SMALL)
    return figure
