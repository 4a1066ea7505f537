"""How much each arm holds against how much it is told, in all, per parameter and per FLOP."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.capacity import by_people, costs, level
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, SMALL, SMALLEST, draw_means, look, one_legend, sheet
from stemrepro.verdicts.effect import of_share

LAW = 2.0
"""Bits per parameter that dense language models hold after 1,000 exposures.

Source: Allen-Zhu and Li (2024), "Physics of Language Models", part 3.3.
"""


def collect(scores: Scores) -> pd.DataFrame:
    """Return bits known by arm and number of people, and the most of them per parameter and per FLOP."""
    rows = []
    for arm in scores.recipe.arms:
        told, known = {}, {}
        for variant in by_people(scores):
            held, share = arm_table(scores, "capacity", arm, variant), level(scores, arm, variant)
            bits = told[variant] = float(held["bits"].iloc[0])
            known[variant] = held["known"].mean()
            rows.append(mean_row("known", arm, bits, share.share, 100 / bits))
            rows.append(mean_row("share", arm, bits, share.share))
            rows.append(mean_row("first", arm, bits, of_share(100 * held["first"].to_numpy(), share.items)))
        best = max(known, key=known.get)
        for name, cost in costs(scores, arm).items():
            rows.append(mean_row(f"per {name}", arm, name, level(scores, arm, best).share, 100 * cost / told[best]))
    return pd.DataFrame(rows)


def draw_known(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw bits known against bits told."""
    measured = pick(data, panel="known")
    told_bits = np.array(sorted(measured["x"].astype(float).unique()))
    axes.plot(told_bits, told_bits, color="black", lw=0.7, ls=":")
    axes.text(told_bits[-1], told_bits[-1], "all of it ", fontsize=SMALLEST, ha="right", va="bottom")
    for arm in scores.recipe.arms:
        rows = pick(measured, what=arm)
        draw_means(axes, rows["x"], rows, **look(arm), label=ARM_LABEL[arm])
    axes.set_xscale("log", base=2)
    axes.set_xticks(told_bits, [f"{bits / 1000:g}k" for bits in told_bits])
    axes.set(xlabel="bits told", ylabel="bits known")
    axes.set_ylim(-100, 1.08 * told_bits[-1])


def draw_per(axes: Axes, data: pd.DataFrame, scores: Scores, what: str, label: str) -> None:
    """Draw the most bits that an arm knows at any number of people, over a cost."""
    ratios = pick(data, panel=f"per {what}").set_index("what").reindex(scores.recipe.arms)
    for place, (arm, row) in enumerate(ratios.iterrows()):
        draw_means(axes, place, row, sideways=True, **look(arm, joined=False), ms=5)
    axes.set_yticks(
        range(len(ratios)), [ARM_LABEL[arm].replace(" (control)", "") for arm in ratios.index], fontsize=SMALL
    )
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw bits known against bits told, and per parameter, active parameter and FLOP."""
    titles = {"a": "What is held of what is told", "b": "Per parameter", "c": "Per active parameter", "d": "Per FLOP"}
    figure, grid = sheet("ab;cd", 6.4, titles)
    draw_known(grid["a"], data, scores)
    one_legend(figure, [grid["a"]], columns=4)
    for name, what, label in (
        ("b", "total", f"bits / parameter (large models: {LAW:g})"),
        ("c", "active", f"bits / active one (large models: {LAW:g})"),
        ("d", "flop", "bits / forward FLOP"),
    ):
        draw_per(grid[name], data, scores, what, label)
    return figure
