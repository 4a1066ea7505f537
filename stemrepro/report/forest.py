"""Forest plots of contrasts: one row per arm, a dot with its 95% interval, and the zero that it has to leave.

`collect` and `draw` give the figure of a recipe without an analysis, with one row per claim.
"""

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import comparison
from stemrepro.measures.scores import Scores
from stemrepro.report.evidence import judged
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, FAINT, PLAIN, SMALL, draw_means, look, sheet
from stemrepro.verdicts.effect import Effect


def draw_forest(
    axes: Axes,
    rows: pd.DataFrame,
    order: list[str],
    label: str,
    hollow: bool = False,
    shift: float = 0.0,
    fill: str = "full",
) -> None:
    """Draw rows (what, value, ci_low, ci_high) from top to bottom in `order`; `what` is an arm.

    Args:
        label: of the x axis.
        hollow: whether markers are hollow, for a second measurement of the same.
        shift: of the markers, in rows.
        fill: "left" for half-filled markers.
    """
    by_arm = rows.set_index("what")
    for place, arm in enumerate(order):
        if arm not in by_arm.index:
            continue
        looks = look(arm, hollow, joined=False) | {"ms": 5, "fillstyle": fill, "mfcalt": "white"}
        draw_means(axes, place + shift, by_arm.loc[arm], sideways=True, **looks)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel(label)


def name_rows(axes: Axes, order: list[str]) -> None:
    """Write the names of the arms at the left, and draw a faint line from each."""
    axes.set_yticks(range(len(order)), [textwrap.fill(ARM_LABEL[arm], 24) for arm in order])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=FAINT, lw=0.8)


def robustness_rows(scores: Scores, arm: str) -> list[dict[str, Any]]:
    """Return lines of data.csv: an arm's gain over dense in settings other than the common one."""
    gains = {
        "own rate": comparison.loss(scores, "dense", arm, "prose", own=True),
        "official start": comparison.official(scores, "dense", arm),
    }
    return [mean_row(f"loss, {name}", arm, name, gain) for name, gain in gains.items() if gain]


def draw_robustness(axes: Axes, data: pd.DataFrame, order: list[str], shift: float) -> None:
    """Draw gains over dense, hollow at tuned learning rates, half-filled and above at the official initialisation."""
    label = axes.get_xlabel()
    draw_forest(axes, pick(data, panel="loss, own rate"), order, label, hollow=True, shift=shift)
    official = pick(data, panel="loss, official start")
    if len(official):
        draw_forest(axes, official, order, label, shift=-0.34, fill="left")


def mark_settings(axes: Axes, data: pd.DataFrame) -> None:
    """Add legend entries of full, hollow and half-filled markers."""
    axes.plot([], [], "o", color=PLAIN, label="common rate")
    axes.plot([], [], "o", color=PLAIN, mfc="white", label="own best rate")
    if (data["panel"] == "loss, official start").any():
        axes.plot([], [], "o", color=PLAIN, fillstyle="left", mfcalt="white", label="official init")


def cost_rows(scores: Scores, arm: str) -> list[dict[str, Any]]:
    """Return two lines of data.csv: an arm's FLOPs per token and all its parameters, as multiples of dense's."""
    return [{"panel": what, "what": arm, "value": value} for what, value in comparison.cost(scores, arm).items()]


def draw_buckets(axes: Axes, rows: pd.DataFrame, arms: tuple[str, ...], buckets: tuple[str, ...]) -> None:
    """Draw rows (what, x, value, ci_low, ci_high) as one line per arm over buckets, the arms side by side at each."""
    for number, arm in enumerate(arms):
        line = pick(rows, what=arm).set_index("x").loc[list(buckets)]
        at = np.arange(len(buckets)) + 0.08 * (number - len(arms) / 2)
        draw_means(axes, at, line, **look(arm), label=ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(range(len(buckets)), buckets)


def collect(scores: Scores) -> pd.DataFrame:
    """Return one line per claim: its effect (of an exact one its distance to the paper) in units of what counts."""
    rows = []
    for one in judged(scores):
        facts, unit = one.evidence, one.claim.smallest_effect
        printed = facts.paper_effect if facts.expected is None else facts.expected
        zero = (printed or 0.0) if facts.kind == "exact" else 0.0
        row = mean_row("claim", one.name, one.claim.unit, facts.effect)
        rows.append(row | {end: (row[end] - zero) / unit for end in ("value", "ci_low", "ci_high")})
    return pd.DataFrame(rows, columns=list(mean_row("", "", "", Effect(np.zeros(1)))))


def draw(data: pd.DataFrame, scores: Scores, note: str = "") -> Figure:
    """Draw what `collect` returns, with 95% intervals; the band is what counts as none.

    Args:
        note: why this figure replaces that of the recipe.
    """
    figure, grid = sheet("a", 1.3 + 0.34 * len(data), {})
    axes = grid["a"]
    axes.axvspan(-1, 1, color="#e4e8ec")
    axes.axvline(0, color="black", lw=0.6)
    draw_means(axes, range(len(data)), data, sideways=True, fmt="o", color=ARM_COLOUR["dense"])
    axes.set_yticks(range(len(data)), [textwrap.fill(name, 34) for name in data["what"]], fontsize=SMALL)
    axes.set_ylim(len(data) - 0.5, -0.5)
    axes.set_xscale("symlog", linthresh=2)
    axes.set_xlabel("effect / smallest effect that counts (band: none)")
    axes.set_title(textwrap.fill(note or scores.recipe.title, 80), fontsize=8 if note else None)
    return figure
