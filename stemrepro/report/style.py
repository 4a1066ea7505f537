"""The style guide of all figures: sizes, and how an arm looks in colour and in grey.

Panels have letters and titles. The bytes of a figure depend on its data alone.
"""

import io
from collections import Counter
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from stemrepro.config.arm import HUES, Arm

WIDTH = 7.4
"""Inches: of a figure, which is that of a page's text."""
FOOT = 0.13
"""Inches below a figure for its small print."""
EDGE = 0.008
"""Share of a figure's width that stays free at its left, as a browser's letters are wider than those measured here."""
SMALL = 7
"""Points of the smallest letters: names and notes in a panel."""
ARM_COLOUR: dict[str, str] = {}
ARM_MARKER: dict[str, str] = {}
ARM_DASHES: dict[str, Any] = {}
ARM_LABEL: dict[str, str] = {}
"""Look of every arm of recipes/arms.yaml; `use_style` fills these in.

Arms of one hue differ in marker and in dashes, so that a reader can tell them apart in grey.
"""
DASHES = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
PLAIN, FAINT = "#555555", "#eeeeee"
"""Colours of legend marks that belong to no arm, and of lines that lead the eye along a row."""
BETTER, LESS = "better →", "← better"
"""Ends of an axis's label that say which way is better, also on an upright axis."""
GAIN = f"loss below dense's\n(nats/token), {BETTER}"
"""Label of an axis with dense's loss less an arm's."""


def use_style(arms: dict[str, Arm]) -> None:
    """Set seaborn's paper look, how arms look, and all that would make two drawings of the same data differ."""
    ARM_COLOUR.update({name: HUES[arm.hue] for name, arm in arms.items()})
    ARM_MARKER.update({name: arm.marker for name, arm in arms.items()})
    ARM_LABEL.update({name: arm.label or name for name, arm in arms.items()})
    before: Counter[str] = Counter()
    for name, arm in arms.items():
        ARM_DASHES[name] = DASHES[before[arm.hue] % len(DASHES)]
        before[arm.hue] += 1
    mpl.rcdefaults()  # whatever a matplotlibrc of the user says
    sns.set_theme(context="paper", style="ticks", font_scale=0.95)
    mpl.rc("svg", hashsalt="stemrepro", fonttype="none")
    mpl.rc("pdf", fonttype=42)
    mpl.rc("figure", dpi=100, max_open_warning=0)
    mpl.rc("savefig", dpi=200)
    mpl.rc("font", family="DejaVu Sans")
    mpl.rc("axes", titleweight="bold", titlesize="medium", titlelocation="left")
    mpl.rc("axes.spines", top=False, right=False)
    mpl.rc("legend", frameon=False, fontsize=SMALL, title_fontsize=SMALL)
    mpl.rc("lines", linewidth=1.1, markersize=4.5)
    mpl.rc("errorbar", capsize=2)


def look(arm: str, hollow: bool = False, joined: bool = True) -> dict[str, Any]:
    """Return an arm's look for `plot` and `errorbar`.

    Args:
        hollow: for a second measurement of the same.
        joined: whether a line joins the marks.
    """
    colour, dashes = ARM_COLOUR[arm], ARM_DASHES[arm] if joined else "none"
    return {"color": colour, "marker": ARM_MARKER[arm], "ls": dashes, "mfc": "white" if hollow else colour}


def sheet(
    layout: str | list[Any], height: float, titles: dict[str, str], **options: Any
) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure of lettered panels.

    Args:
        layout: a mosaic of letters, as "ab;cd".
        height: inches.
        titles: letter -> title.
        options: of matplotlib's subplot_mosaic.
    """
    figure, grid = plt.subplot_mosaic(layout, figsize=(WIDTH, height), layout="constrained", **options)
    figure.get_layout_engine().set(rect=(EDGE, FOOT / height, 1 - EDGE, 1 - FOOT / height))
    for letter, title in titles.items():
        grid[letter].set_title(f"{letter}  {title}")
    return figure, grid


def _power(value: float, place: int | None = None) -> str:
    """Return a power of two as a reader knows it: 0.5, 64, 4k, 1M."""
    size, unit = next(((size, unit) for size, unit in ((2**20, "M"), (2**10, "k")) if value >= size), (1, ""))
    return f"{value / size:g}{unit}"


def doubling(axes: Axes, *names: str) -> None:
    """Make axes, "x" or "y", logarithmic, with powers of two as ticks."""
    for name in names:
        getattr(axes, f"set_{name}scale")("log", base=2)
        getattr(axes, f"{name}axis").set_major_formatter(_power)


def error_bars(rows: pd.DataFrame | pd.Series) -> np.ndarray:
    """Return distances from `value` to `ci_low` and `ci_high`, [2] or [2, n], as matplotlib's yerr.

    They are 0 where one seed gives no interval.
    """
    ends = rows["value"] - rows["ci_low"], rows["ci_high"] - rows["value"]
    return np.asarray(np.nan_to_num(np.array(ends, float)))


def draw_means(axes: Axes, at: object, rows: pd.DataFrame | pd.Series, sideways: bool = False, **looks: Any) -> None:
    """Draw means with their 95% intervals at places of an axis, x or, `sideways`, y.

    Args:
        at: a number for each of the rows, or one for all.
        rows: lines of data.csv, or one of them.
        looks: of matplotlib's errorbar.
    """
    bars = error_bars(rows).reshape(2, -1)
    places = np.asarray(at, float) + np.zeros(bars.shape[1])
    if sideways:
        axes.errorbar(rows["value"], places, xerr=bars, **looks)
    else:
        axes.errorbar(places, rows["value"], yerr=bars, **looks)


def draw_band(
    axes: Axes, at: pd.Series, rows: pd.DataFrame, colour: str, unit: float = 1.0, alpha: float = 0.2
) -> None:
    """Draw 95% intervals, over `unit`, as a band."""
    axes.fill_between(at.astype(float), rows["ci_low"] / unit, rows["ci_high"] / unit, color=colour, alpha=alpha, lw=0)


def ink(colour: str) -> str:
    """Return a colour dark enough for words: its contrast with white is at least WCAG's 4.5."""
    parts = np.array(to_rgb(colour))
    while True:
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        if 1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05) >= 4.5:
            return to_hex((parts[0], parts[1], parts[2]))
        parts = parts * 0.97


def note(axes: Axes, words: str, at: tuple[float, float], offset: tuple[float, float], **looks: Any) -> None:
    """Write words next to a point, so many points of print off it."""
    plain: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "va": "center"}
    if looks.get("color", "white") != "white":  # white words stand in a dark bar
        looks["color"] = ink(looks["color"])
    axes.annotate(words, at, offset, **plain | looks)


def short(arm: str) -> str:
    """Return an arm's name without the word that it is a control."""
    return ARM_LABEL[arm].removesuffix(" (control)")


def name_ends(axes: Axes, ends: dict[str, tuple[float, str]], apart: float = 0.08) -> None:
    """Write names of lines at the right edge of a panel whose limits are final.

    Args:
        ends: name -> where its line ends on the y axis, colour.
        apart: least distance of two names, in heights of the panel.
    """
    axes.get_ylim()  # lets limits be found that are not yet
    at = axes.transData.transform([(1, end) for end, _ in ends.values()])
    places = axes.transAxes.inverted().transform(at)[:, 1]
    order = np.argsort(places)
    for _ in range(100):
        for one, two in pairwise(order):
            push = max(0.0, apart - (places[two] - places[one])) / 2
            places[[one, two]] += -push, push
    for (name, (_, colour)), place in zip(ends.items(), places, strict=True):
        note(axes, name, (1, place), (4, 0), xycoords="axes fraction", color=colour)


def headline(figure: Figure, message: str, shown: bool = True, question: str = "") -> None:
    """Write a figure's message above it, or its question where the numbers don't show the message.

    Args:
        shown: whether the drawn numbers show the message, as they may not at another scale.
        question: of the recipe, its title.
    """
    words = message if shown else question
    figure.suptitle(words, x=0.01, ha="left", weight="bold", fontsize=10)


def footer(figure: Figure, text: str) -> None:
    """Write small print under a figure: scale and seeds."""
    figure.text(0.995, 0.003, text, ha="right", va="bottom", fontsize=SMALL, color=PLAIN)


def settle(figure: Figure) -> None:
    """Fix the layout at positions rounded to a millionth of the figure.

    The last digits of the layout solver sometimes differ between processes, and the ids in an SVG follow from them.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # "none" would leave a placeholder, for which savefig draws twice
    for axes in figure.axes:
        left, bottom, width, height = (round(float(value), 6) for value in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))


def render(figure: Figure, kind: str) -> bytes:
    """Return the figure as pdf, svg or png, without dates or versions in its bytes."""
    buffer = io.BytesIO()
    dated = {"pdf": ("CreationDate", "Producer", "Creator"), "svg": ("Date",), "png": ("Software",)}
    figure.savefig(buffer, format=kind, metadata=dict.fromkeys(dated[kind]))
    return buffer.getvalue()
