"""One look for all figures: a colour and a marker an arm, sizes for print, bytes that depend on the data alone."""

import io

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from stemrepro.arm import HUES, Arm

ARM_COLOUR: dict[str, str] = {}
ARM_MARKER: dict[str, str] = {}
ARM_LABEL: dict[str, str] = {}
"""Look of every arm of recipes/arms.yaml; `use_style` fills these in."""
SOURCE_COLOUR = {
    "speeches": HUES["blue"],
    "bible": HUES["orange"],
    "factbook": HUES["green"],
    "glosses": HUES["purple"],
    "hub": HUES["grey"],
}


def use_style(arms: dict[str, Arm]) -> None:
    """Sets seaborn's paper look, everything that would make two drawings of the same data differ, and how arms look."""
    ARM_COLOUR.update({name: HUES[arm.hue] for name, arm in arms.items()})
    ARM_MARKER.update({name: arm.marker for name, arm in arms.items()})
    ARM_LABEL.update({name: arm.label or name for name, arm in arms.items()})
    sns.set_theme(context="paper", style="ticks", font_scale=0.95)
    mpl.rcParams.update({
        "svg.hashsalt": "stemrepro", "svg.fonttype": "none", "pdf.fonttype": 42, "figure.dpi": 100, "savefig.dpi": 200,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titleweight": "bold", "axes.titlesize": "medium",
        "axes.titlelocation": "left", "legend.frameon": False, "font.family": "DejaVu Sans",
    })  # fmt: skip


def error_bars(rows: pd.DataFrame | pd.Series) -> np.ndarray:
    """Distances from values to interval ends, [2] or [2, n], as matplotlib's yerr; none where one seed gives no interval."""
    return np.nan_to_num(np.array([rows["value"] - rows["ci_low"], rows["ci_high"] - rows["value"]], float))


def footer(figure: Figure, text: str) -> None:
    """Small print under a figure: scale, seeds, hashes."""
    figure.text(0.995, 0.003, text, ha="right", va="bottom", fontsize=6, color="#555555")


def settle(figure: Figure) -> None:
    """Fixes the layout at positions rounded to a millionth of the figure. The solver's last digits differ between processes
    now and then, and the ids in an SVG are made from them."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(float(value), 6) for value in axes.get_position().bounds])


def render(figure: Figure, kind: str) -> bytes:
    """The figure as pdf, svg or png, without dates or versions in its bytes."""
    buffer = io.BytesIO()
    metadata = {
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
        "svg": {"Date": None},
        "png": {"Software": None},
    }
    figure.savefig(buffer, format=kind, metadata=metadata[kind])
    return buffer.getvalue()


__all__ = [
    "ARM_COLOUR",
    "ARM_LABEL",
    "ARM_MARKER",
    "SOURCE_COLOUR",
    "error_bars",
    "footer",
    "plt",
    "render",
    "settle",
    "use_style",
]
