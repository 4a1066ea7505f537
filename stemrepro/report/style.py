"""One look for all figures: a colour and a marker an arm, sizes for print, bytes that depend on the data alone."""

import io

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

_COLOURS = sns.color_palette("colorblind", 10).as_hex()
_DENSE, _BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _BROWN, _PINK, _GREY, _YELLOW, _CYAN = "#333333", *_COLOURS
_ARMS = {
    "dense": (_DENSE, "o", "dense"),
    "stem-third": (_BLUE, "^", "STEM 1/3"),
    "stem-half": (_GREEN, "s", "STEM 1/2"),
    "stem-full": (_RED, "D", "STEM full"),
    "token-only": (_ORANGE, "X", "token-only (control)"),
    "gate-replaced": (_PURPLE, "^", "gate replaced"),
    "down-replaced": (_BROWN, "v", "down replaced"),
    "stem-dagger": (_PINK, "P", "STEM-dagger"),
    "blend": (_PINK, "d", "blend"),
    "stem-shifted": (_BLUE, ">", "STEM 1/3, shifted"),
    "stem-early": (_BLUE, "<", "STEM 1/3, early"),
    "stem-late": (_BLUE, "v", "STEM 1/3, late"),
    "stem-single": (_BLUE, "o", "STEM, one layer"),
    "hash-moe": (_GREY, "h", "Hash-MoE"),
    "topk-moe": (_GREY, "*", "top-2 MoE"),
    "dense-wide": (_DENSE, "s", "dense, equal parameters"),
    "dense-equal-flops": (_DENSE, "v", "dense, equal FLOPs"),
    "value-embeddings": (_CYAN, "p", "value embeddings"),
    "ple": (_CYAN, "d", "PLE"),
    "stem-lowrank": (_YELLOW, "s", "STEM, narrow table"),
    "ngram-table": (_YELLOW, "D", "bigram table"),
    "stem-small": (_RED, "<", "STEM full, started at 0.02"),
    "stem-normal": (_RED, ">", "STEM full, started at 1"),
    "stem-tuned": (_RED, "^", "STEM full, rate x 8, no decay"),
    "stem-decayed": (_RED, "v", "STEM full, decay x 40"),
    "stem-decayed-8": (_RED, "p", "STEM full, decay x 8"),
    "stem-touched": (_RED, "s", "STEM full, touched rows"),
    "stem-frozen": (_ORANGE, "o", "STEM, frozen rows (control)"),
    "stem-shuffled": (_ORANGE, "s", "STEM, shuffled rows (control)"),
    "stem-shared": (_ORANGE, "D", "STEM, one table (control)"),
    "input-add": (_ORANGE, "v", "rows added to the input (control)"),
}
"""Colour, marker and name of every arm: a hue a family, told apart by markers within."""
ARM_COLOUR, ARM_MARKER, ARM_LABEL = ({arm: look[i] for arm, look in _ARMS.items()} for i in range(3))
SOURCE_COLOUR = {
    "speeches": _COLOURS[0],
    "bible": _COLOURS[1],
    "factbook": _COLOURS[2],
    "glosses": _COLOURS[4],
    "hub": _COLOURS[7],
}


def use_style() -> None:
    """Sets seaborn's paper look and everything that would make two drawings of the same data differ."""
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
