"""Contrasts as a forest: a line an arm, a dot with its 95% interval, the zero that it has to leave; and as lines over buckets."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, error_bars


def draw_forest(
    axes: Axes, rows: pd.DataFrame, order: list[str], label: str, hollow: bool = False, shift: float = 0.0
) -> None:
    """Draws rows (what, value, ci_low, ci_high) from top to bottom in `order`; `what` is an arm.

    Args:
        hollow: hollow markers, for a second measurement of the same.
        shift: of the lines, in rows.
    """
    own = rows.set_index("what")
    for place, arm in enumerate(order):
        if arm not in own.index:
            continue
        row = own.loc[arm]
        axes.errorbar(
            row["value"], place + shift, xerr=error_bars(row)[:, None], fmt=ARM_MARKER[arm], color=ARM_COLOUR[arm], ms=5,
            mfc="white" if hollow else ARM_COLOUR[arm], capsize=2.5, lw=1.1,
        )  # fmt: skip
    axes.axvline(0, color="black", lw=0.6)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel(label)


def name_rows(axes: Axes, order: list[str]) -> None:
    """Names of the arms at the left."""
    axes.set_yticks(range(len(order)), [ARM_LABEL[arm].replace(" (control)", "\n(control)") for arm in order])
    axes.tick_params(axis="y", length=0)


def mark_rates(axes: Axes) -> None:
    """Legend entries of full and hollow markers."""
    axes.plot([], [], "o", color="#555555", label="common rate")
    axes.plot([], [], "o", color="#555555", mfc="white", label="own best rate")


def draw_buckets(axes: Axes, rows: pd.DataFrame, arms: tuple[str, ...], buckets: tuple[str, ...]) -> None:
    """Draws rows (what, x, value, ci_low, ci_high) as a line an arm over buckets, the arms side by side at each."""
    for number, arm in enumerate(arms):
        own = rows[rows["what"] == arm].set_index("x").loc[list(buckets)]
        at = np.arange(len(buckets)) + 0.08 * (number - len(arms) / 2)
        axes.errorbar(
            at, own["value"], yerr=error_bars(own), color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], ms=4, lw=1, capsize=2,
            label=ARM_LABEL[arm],
        )  # fmt: skip
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(range(len(buckets)), buckets)
