"""Whether the memories that lead the leaderboard after 9 tokens a parameter still lead after more."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.measures.comparison import lead, loss
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import parameter_counts
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import BETTER, PLAIN, headline, note, sheet

HEADLINE = "After {} tokens per parameter STEM full is ahead of Engram,\nwhich leads the leaderboard after nine"
STEM = "stem-full"
RIVALS = ("engram", "over-encoding")
APART = 0.4
"""Distance of two budgets of a method; methods are 1 apart."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads over dense in % of its bits per byte, and how far STEM full ends below each rival, by budget."""
    rows, recipe, catalog = [], scores.recipe, scores.catalog
    dense, _ = run_settings(Address(MAIN, "dense"), catalog.arms["dense"], catalog.variant(MAIN), scores.scale)
    for variant in recipe.variants:
        x = catalog.variant(variant).at(scores.scale).training.tokens / parameter_counts(dense)["total"]
        rows += [mean_row("lead", arm, x, lead(scores, "dense", arm, variant)) for arm in (STEM, *RIVALS)]
        rows += [mean_row("below", arm, x, loss(scores, arm, STEM, "prose", at=variant)) for arm in RIVALS]
    return pd.DataFrame(rows)


def draw_panel(axes: Axes, rows: pd.DataFrame, arms: list[str], label: str, digits: int) -> None:
    """Draw means of methods with their numbers, hollow at the longer budget."""
    budgets = sorted(rows["x"].astype(float).unique())
    for number, budget in enumerate(budgets):
        shift = APART * (number - (len(budgets) - 1) / 2)
        at = pick(rows, x=budget)
        draw_forest(axes, at, arms, label, hollow=number > 0, shift=shift)
        for place, row in enumerate(at.set_index("what").loc[arms].itertuples()):
            words = f"{row.value:.{digits}f} ({row.ci_low:.{digits}f} to {row.ci_high:.{digits}f})"
            note(axes, words, (row.value, place + shift), (0, 9), ha="center", color=PLAIN)
    name_rows(axes, arms)
    axes.margins(x=0.25)
    axes.set_xlim(left=min(axes.get_xlim()[0], 0))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw each method's lead over dense, and STEM full's over each rival."""
    budgets = [f"{budget:.0f}" for budget in sorted(data["x"].astype(float).unique())]
    at = f"{budgets[0]} tokens per parameter" + f" (hollow: {budgets[-1]})" * (len(budgets) > 1)
    titles = {"a": f"Lead over dense, {at}", "b": "STEM full's lead over"}
    figure, grid = sheet("ab", 2.8, titles, width_ratios=(1.2, 1))
    draw_panel(grid["a"], pick(data, panel="lead"), [STEM, *RIVALS], f"bits per byte below dense's (%), {BETTER}", 1)
    draw_panel(grid["b"], pick(data, panel="below"), [*RIVALS], f"loss (nats/token), {BETTER}", 3)
    below = pick(data, panel="below", what="engram")
    headline(figure, HEADLINE.format(*budgets), bool((below["ci_low"] > 0).all()), scores.recipe.title)
    return figure
