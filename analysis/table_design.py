"""Reviewers' wish: how a table starts, learns, how wide it is and whether layers share it; controls; gains by token frequency.

    python analysis/table_design.py --scale laptop

Reads scores/<scale>/ and recipes/table_design.yaml, writes results/<scale>/table_design/.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from stemrepro.recipe import load
from stemrepro.report.arms import Comparison, Measured, all_runs, read_arms
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, run_inputs, save, verdicts
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, error_bars, plt, use_style

NAME = "table_design"
FREQUENCIES = ("1-31", "32-255", "256-2047", "2048+")
SPLIT = ("stem-full", "token-only", "stem-tuned", "stem-lowrank", "stem-frozen")


def collect(measured: dict[str, Measured], comparison: Comparison) -> pd.DataFrame:
    """Gains over dense, in all and by training count of the input token."""
    rows = []
    for arm, found in measured.items():
        rows.append({"panel": "table parameters", "what": arm, "value": found.summary["parameters"]["tables"]})
        if arm == "dense":
            continue
        rows.append(mean_row("loss", arm, "", comparison.contrast(measured, "dense", arm, "prose")))
        for bucket in FREQUENCIES:
            gain = comparison.contrast(measured, "dense", arm, f"prose:frequency={bucket}")
            rows.append(mean_row("by frequency", arm, bucket, gain))
    return pd.DataFrame(rows)


def draw_frequencies(axes: Axes, data: pd.DataFrame) -> None:
    """Gain over dense by training count of the input token."""
    own = data[data["panel"] == "by frequency"]
    for number, arm in enumerate(SPLIT):
        rows = own[own["what"] == arm].set_index("x").loc[list(FREQUENCIES)]
        at = np.arange(len(FREQUENCIES)) + 0.08 * (number - len(SPLIT) / 2)
        axes.errorbar(at, rows["value"], yerr=error_bars(rows), color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], ms=4, lw=1, capsize=2, label=ARM_LABEL[arm])  # fmt: skip
    axes.set_xticks(range(len(FREQUENCIES)), FREQUENCIES)
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="training count of the input token", ylabel="dense - arm (nats/token)")
    axes.legend(fontsize=6.5)


def main() -> None:
    """Draws the figure and judges the claims of one scale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", required=True)
    scale, book = parser.parse_args().scale, load()
    recipe = book.recipes[NAME]
    measured = read_arms(NAME, recipe, Path("scores") / scale)
    comparison = Comparison(book.arms, book.scale(scale))
    data = collect(measured, comparison)
    gains = data[data["panel"] == "loss"].sort_values("value", ascending=False)
    order = list(gains["what"])
    use_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.7), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))
    draw_forest(left, gains, order, "dense - arm, prose loss (nats/token)")
    left.grid(axis="y", color="#eeeeee", lw=0.8)
    name_rows(left, order)
    draw_frequencies(right, data)
    for axes, title in zip((left, right), ("a  Better than dense", "b  By frequency of the input token"), strict=True):
        axes.set_title(title)
    rows = verdicts(recipe, measured, scale, comparison)
    save(Path("results") / scale / NAME, figure, data, rows, run_inputs(all_runs(measured)))


if __name__ == "__main__":
    main()
