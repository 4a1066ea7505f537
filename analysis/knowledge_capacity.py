"""How much each arm knows of all that it is told, in percent and per FLOP."""

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.measures.capacity import by_people, costs, level
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import BETTER, PLAIN, headline, sheet

HEADLINE = (
    "A dense model of STEM full's size knows nearly all that it is told;\n"
    "per FLOP no difference of STEM full and dense is shown"
)
NEARLY = 95
"""Percent."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return shares known by arm and bits told, and the most bits known, and told, per forward FLOP."""
    rows = []
    for arm in scores.recipe.arms:
        told, known = {}, {}
        for variant in by_people(scores):
            held, share = arm_table(scores, "capacity", arm, variant), level(scores, arm, variant)
            told[variant] = float(held["bits"].iloc[0])
            known[variant] = held["known"].mean()
            rows.append(mean_row("share", arm, told[variant], share.share))
        best = max(known, key=known.get)
        bits = told[best] / costs(scores, arm)["flop"]
        rows.append(mean_row("per flop", arm, "flop", level(scores, arm, best).share, 100 / bits))
        rows.append({"panel": "told per flop", "what": arm, "x": "flop", "value": bits})
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the share that is known of the most that is told, and the most that is known per FLOP."""
    titles = {"a": "Share known", "b": "Per FLOP (dotted: all that is told)"}
    figure, grid = sheet("ab", 3.8, titles, sharey=True)
    share, flop, most = (pick(data, panel=panel) for panel in ("share", "per flop", "told per flop"))
    told = share["x"].astype(float).max()
    share = share[share["x"].astype(float) == told].sort_values("value", ascending=False)
    order, most = list(share["what"]), most.set_index("what")["value"]
    for place, arm in enumerate(order):
        grid["b"].plot([most[arm]] * 2, [place - 0.3, place + 0.3], color=PLAIN, lw=0.8, ls=":")
    for letter, rows, label in (
        ("a", share, f"of {told:,.0f} bits told (%), {BETTER}"),
        ("b", flop, f"bits / forward FLOP, {BETTER}"),
    ):
        draw_forest(grid[letter], rows, order, label)
        name_rows(grid[letter], order)
        grid[letter].set_xlim(left=0)
        grid[letter].locator_params(axis="x", nbins=4)
        grid[letter].tick_params(labelleft=letter == "a")
    grid["a"].axvline(100, color=PLAIN, lw=0.8, ls=":")
    flop, known = flop.set_index("what"), share.set_index("what")["value"]
    same = flop.loc["stem-full", "ci_low"] < flop.loc["dense", "value"] < flop.loc["stem-full", "ci_high"]
    headline(figure, HEADLINE, bool(same and known["dense-equal-size"] > NEARLY), scores.recipe.title)
    return figure
