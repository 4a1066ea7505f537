"""STEM's lead over dense against the size of the model: one GPU's ten minutes beyond the ladder of widths.

The ladder's points are at 9 tokens a parameter of dense, the GPU's at 5.6 and at 3 (width 384, one seed).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.measures.base import measured
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.sizes import Sizes
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_LABEL, BETTER, SMALL, error_bars, look, sheet
from stemrepro.verdicts.contrast import Contrast, unpaired

STEM = ("stem-third", "stem-full")
LADDER = ("size_ladder", "width")
"""The recipe and the scale of the narrower models; the line whose vocabulary grows is this scale's."""


def ladder(measure: Sizes) -> Sizes | None:
    """Return the measure of the narrower models; None where their scores are not here."""
    inputs, (name, scale) = measure.inputs, LADDER
    folder = inputs.folder.parent / scale
    return measured(Inputs(name, inputs.catalog, scale, folder)) if folder.exists() else None


def row(panel: str, arm: str, measure: Sizes, variant: str | None) -> dict:
    """Return a line of data.csv: the lead at a size, against the parameters of dense there."""
    x = float(measure.of("dense", variant).summary["parameters"]["total"])
    lead = measure.lead("dense", arm, variant)
    alone = {"ci_low": np.nan, "ci_high": np.nan} if lead.seeds == 1 else {}
    return mean_row(panel, arm, x, lead) | alone


def collect(measure: Sizes) -> pd.DataFrame:
    """Return leads in % of dense's bits a byte, and by how many points that at the widest of the ladder is passed."""
    rows, narrower = [], ladder(measure)
    for arm in STEM:
        rows.append(row("gpu", arm, measure, None))
        rows += [
            row("gpu", arm, measure, name) for name, at in measure.inputs.recipe.variants.items() if arm in at.arms
        ]
        if narrower:
            sizes = narrower.sizes("grown")
            rows += [row("ladder", arm, narrower, size.variant) for size in sizes]
            rows.append(mean_row("beyond", arm, "", beyond(measure, narrower, arm)))
    return pd.DataFrame(rows)


def beyond(measure: Sizes, narrower: Sizes, arm: str) -> Contrast:
    """Return the lead here less that at the widest model of the ladder, in points; two samples."""
    widest = narrower.sizes("grown")[-1].variant
    return unpaired(measure.lead("dense", arm).differences, narrower.lead("dense", arm, widest).differences)


def draw(data: pd.DataFrame, measure: Sizes) -> Figure:
    """Draw the leads against the size of dense; the ladder's hollow, joined by a line."""
    figure, grid = sheet("a", 3.4, {})
    axes = grid["a"]
    for arm in STEM:
        for panel, label in (("ladder", "_"), ("gpu", ARM_LABEL[arm])):
            rows = data[(data["panel"] == panel) & (data["what"] == arm)]
            kind = look(arm, hollow=panel == "ladder") | ({} if panel == "ladder" else {"ls": "none"})
            axes.errorbar(rows["x"].astype(float), rows["value"], yerr=error_bars(rows), label=label, **kind)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log")
    axes.set(xlabel="parameters of dense", ylabel=f"loss below dense's\n(% of bits per byte), {BETTER}")
    axes.set_title("Hollow: 9 tokens a parameter, widths 16 to 48; filled: fewer, width 256 and more", fontsize=SMALL)
    axes.legend(fontsize=SMALL)
    return figure
