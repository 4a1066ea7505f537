"""Does STEM's gap to dense, and its contextual part, grow or shrink with tokens and width? A drawn trend, no number beyond it."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.ladder import AXES, Ladder
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_COLOUR, ARM_MARKER, error_bars, plt

GAPS = {
    "dense - STEM 1/3": ("dense", "stem-third"),
    "dense - STEM full": ("dense", "stem-full"),
    "token part": ("dense", "token-only"),
    "contextual part": ("token-only", "stem-full"),
}
LOOKS = {
    "dense - STEM 1/3": ("stem-third", "-"),
    "dense - STEM full": ("stem-full", "-"),
    "token part": ("token-only", "--"),
    "contextual part": ("stem-full", "--"),
}
"""Arm whose colour and marker a gap has, and its line."""


def collect(measure: Ladder) -> pd.DataFrame:
    """Gaps at each place of both ladders, their slopes, and the two predictions on record."""
    rows, paper = [], measure.inputs.book.paper
    for axis in AXES:
        for what, (high, low) in GAPS.items():
            gaps = measure.gaps(high, low, axis)
            rows += [mean_row(axis, what, at, gap) for at, gap in gaps.items()]
            rows.append(mean_row(f"slope, {axis}", what, "", measure.contrast(high, low, axis)))
    paper_gap = np.log(paper.value("fig-1a/dense/1.0T") / paper.value("fig-1a/stem-third/1.0T"))
    rows.append({"panel": "paper", "what": "constant gap, 1B", "value": float(paper_gap)})
    return pd.DataFrame(rows)


def draw_gaps(axes: Axes, data: pd.DataFrame, axis: str, label: str) -> None:
    """Gaps along an axis with 95% intervals over seeds."""
    own = data[data["panel"] == axis]
    for what, (arm, line) in LOOKS.items():
        rows = own[own["what"] == what]
        fill = ARM_COLOUR[arm] if line == "-" else "white"
        axes.errorbar(rows["x"].astype(float), rows["value"], yerr=error_bars(rows), color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], mfc=fill, ms=5, lw=1.2, ls=line, capsize=2.5, label=what)  # fmt: skip
    paper = data[data["panel"] == "paper"]["value"].iloc[0]
    axes.axhline(paper, color="black", lw=0.8, ls=":", label="paper: constant, 1B")
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xscale("log", base=2)
    ticks = sorted(own["x"].astype(float).unique())
    axes.set_xticks(ticks, [f"{tick / 1e6:.2g}M" if tick > 1e4 else f"{tick:g}" for tick in ticks])
    axes.set(xlabel=label, ylabel="gap in prose loss (nats/token)")


def draw_slopes(axes: Axes, data: pd.DataFrame) -> None:
    """Slopes per doubling with 95% intervals."""
    places = [(axis, what) for axis in AXES for what in GAPS]
    for place, (axis, what) in enumerate(places):
        row = data[(data["panel"] == f"slope, {axis}") & (data["what"] == what)].iloc[0]
        arm, line = LOOKS[what]
        axes.errorbar(row["value"], place, xerr=error_bars(row)[:, None], fmt=ARM_MARKER[arm], color=ARM_COLOUR[arm], mfc=ARM_COLOUR[arm] if line == "-" else "white", ms=5, capsize=2.5)  # fmt: skip
    axes.set_yticks(range(len(places)), [f"{what}, {axis}" for axis, what in places], fontsize=7)
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_xlabel("nats per doubling")


def draw(data: pd.DataFrame, measure: Ladder) -> Figure:
    """Gaps over tokens and over width, and their slopes."""
    narrow = next(point for point in measure.points.values() if point.width != 1)
    figure, (tokens, width, slopes) = plt.subplots(1, 3, figsize=(7.4, 3.3), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))
    draw_gaps(tokens, data, "tokens", "training tokens")
    draw_gaps(width, data, "width", f"width, after {narrow.at(measure.inputs.scale).training.tokens / 1e6:.2g}M tokens")
    draw_slopes(slopes, data)
    tokens.legend(fontsize=6, loc="upper right", handlelength=1.5)
    for axes, title in zip((tokens, width, slopes), ("a  Over tokens", "b  Over width", "c  Slopes"), strict=True):
        axes.set_title(title)
    return figure
