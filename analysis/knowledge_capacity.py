"""How much each arm knows of all that it is told, in percent, per parameter and per FLOP."""

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.measures.capacity import by_people, costs, level
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import BETTER, PLAIN, headline, sheet

LAW = 2.0
"""Bits per parameter that dense language models hold after 1,000 exposures.

Source: Allen-Zhu and Li (2024), "Physics of Language Models", part 3.3.
"""
HEADLINE = (
    "STEM full knows less per parameter than dense, its tables counted;\nper FLOP no difference of the two is shown"
)


def collect(scores: Scores) -> pd.DataFrame:
    """Return shares known by arm and bits told, and the most bits known per parameter and per FLOP."""
    rows = []
    for arm in scores.recipe.arms:
        told, known = {}, {}
        for variant in by_people(scores):
            held, share = arm_table(scores, "capacity", arm, variant), level(scores, arm, variant)
            told[variant] = float(held["bits"].iloc[0])
            known[variant] = held["known"].mean()
            rows.append(mean_row("share", arm, told[variant], share.share))
        best = max(known, key=known.get)
        for name in ("total", "flop"):
            over = 100 * costs(scores, arm)[name] / told[best]
            rows.append(mean_row(f"per {name}", arm, name, level(scores, arm, best).share, over))
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the share that is known of the most that is told, and the most that is known per parameter and per FLOP."""
    titles = {"a": "Share known", "b": "Per parameter", "c": "Per FLOP"}
    figure, grid = sheet("abc", 3.8, titles, sharey=True)
    share, total, flop = (pick(data, panel=panel) for panel in ("share", "per total", "per flop"))
    told = share["x"].astype(float).max()
    share = share[share["x"].astype(float) == told].sort_values("value", ascending=False)
    order = list(share["what"])
    for letter, rows, label in (
        ("a", share, f"of {told:,.0f} bits told (%), {BETTER}"),
        ("b", total, f"bits / parameter, {BETTER}\n(large models: {LAW:g})"),
        ("c", flop, f"bits / forward FLOP, {BETTER}"),
    ):
        draw_forest(grid[letter], rows, order, label)
        name_rows(grid[letter], order)
        grid[letter].set_xlim(left=0)
        grid[letter].locator_params(axis="x", nbins=4)
        grid[letter].tick_params(labelleft=letter == "a")
    grid["a"].axvline(100, color=PLAIN, lw=0.8, ls=":")
    total, flop = total.set_index("what"), flop.set_index("what")
    less = total.loc["stem-full", "ci_high"] < total.loc["dense", "ci_low"]
    same = flop.loc["stem-full", "ci_low"] < flop.loc["dense", "value"] < flop.loc["stem-full", "ci_high"]
    headline(figure, HEADLINE, bool(less and same), scores.recipe.title)
    return figure
