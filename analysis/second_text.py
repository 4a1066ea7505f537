"""How far STEM ends below dense after training on code, in place of prose."""

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.measures.comparison import lead, loss
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row
from stemrepro.report.style import BETTER, PLAIN, headline, note, sheet

STEM = ["stem-third", "stem-full"]
HEADLINE = "After training on code, STEM full ends below dense"


def collect(scores: Scores) -> pd.DataFrame:
    """Return leads over dense on code, in % of dense's bits per byte and in nats per token."""
    rows = [mean_row("lead", arm, "", lead(scores, "dense", arm)) for arm in STEM]
    return pd.DataFrame(rows + [mean_row("below", arm, "", loss(scores, "dense", arm, "code")) for arm in STEM])


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw both leads of each placement, with their numbers."""
    titles = {"a": "Relative lead over dense, on code", "b": "Loss below dense's, on code"}
    figure, grid = sheet("ab", 2.0, titles, sharey=True)
    labels = {"lead": f"bits per byte below dense's (%), {BETTER}", "below": f"loss (nats/token), {BETTER}"}
    for axes, (panel, label), digits in zip(grid.values(), labels.items(), (1, 3), strict=True):
        rows = data[data["panel"] == panel]
        draw_forest(axes, rows, STEM, label)
        for place, row in enumerate(rows.itertuples()):
            words = f"{row.value:.{digits}f} ({row.ci_low:.{digits}f} to {row.ci_high:.{digits}f})"
            note(axes, words, (row.value, place), (0, 9), ha="center", color=PLAIN)
        axes.margins(x=0.25)
        axes.set_xlim(left=min(axes.get_xlim()[0], 0))
    name_rows(grid["a"], STEM)
    shown = data[(data["panel"] == "below") & (data["what"] == "stem-full")]
    headline(figure, HEADLINE, bool((shown["ci_low"] > 0).all()), scores.recipe.title)
    return figure
