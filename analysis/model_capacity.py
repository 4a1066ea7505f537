"""How many rows a longer context touches in a published model, and what it is worth to this model and to the same one
converted. SmolLM2-135M-Instruct, quantised to 4 bits; nothing was trained as STEM.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.model_capacity import COUNTS, MODELS, STUDY, by_document, losses, worth_of
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import table
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    PLAIN,
    doubling,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)

HEADLINE = (
    "A longer context reads more rows of a table; that it is worth more to a real model\n"
    "with STEM 1/3's tables than to dense isn't shown"
)
ARMS = {"dense": "dense", "third": "stem-third"}
"""Models that are drawn, as arms; STEM full is worse than a guess."""


def count_rows(counts: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table's touched rows over the up-projection, in the documents that have all lengths."""
    whole = counts[counts["document"].isin(pick(counts, length=counts["length"].max())["document"])]
    return [
        mean_row("touched", "stem-full", length, by_document(part["distinct"] / part["width"]))
        for length, part in whole.groupby("length")
    ]


def collect(scores: Scores) -> pd.DataFrame:
    """Return touched rows, losses by context, and what context is worth."""
    rows = count_rows(table(scores, STUDY, COUNTS))
    for model in MODELS:
        for context, loss in losses(scores, model).items():
            values = {"loss": loss, "worth": worth_of(scores, model, context)}
            if model != "dense":
                values["growth"] = values["worth"] - worth_of(scores, "dense", context)
            rows += [mean_row(panel, model, context, by_document(value)) for panel, value in values.items()]
    return pd.DataFrame(rows)


def draw_touched(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a table's touched rows over the up-projection against context."""
    x = rows["x"].astype(float)
    draw_means(axes, x, rows, **look("stem-full"))
    for place, value, high in zip(x, rows["value"], rows["ci_high"], strict=True):
        note(axes, f"{value:.2g}", (place, high), (0, 7), ha="center", color=ARM_COLOUR["stem-full"])
    axes.axhline(1, color=PLAIN, lw=0.8, ls=":")
    note(axes, "the up-projection\nthat it replaces", (x.max(), 1), (8, -11), ha="right", color=PLAIN)
    doubling(axes, "x")
    axes.margins(x=0.1)
    axes.set_ylim(0, 1.15 * rows["ci_high"].max())
    axes.set(xlabel="tokens of context", ylabel="parameters of one table's read rows\nover the up-projection's")


def draw_worth(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what context is worth to dense and to STEM 1/3 against its length, and write their difference."""
    ends = {}
    for number, (model, arm) in enumerate(ARMS.items()):
        rows = pick(data, panel="worth", what=model)
        draw_means(axes, rows["x"].astype(float) * (0.98 + 0.04 * number), rows, **look(arm))
        ends[f"{ARM_LABEL[arm]}: {rows['value'].iloc[-1]:.2f}"] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    doubling(axes, "x")
    axes.axhline(0, color="black", lw=0.6)
    last, full = pick(data, panel="growth", what="third").iloc[-1], pick(data, panel="loss", what="full").iloc[0]
    words = (
        f"STEM 1/3's less dense's: {last['value']:.2f} ({last['ci_low']:.2f} to {last['ci_high']:.2f})\n"
        f"not drawn: STEM full, whose loss is {full['value']:.0f},\nmore than a guess has"
    )
    note(axes, words, (0.03, 0.9), (0, 0), xycoords="axes fraction", color=PLAIN)
    axes.set(
        xlabel="tokens of context before the same targets",
        ylabel=f"taken off the loss by context\n(nats/token), {BETTER}",
    )
    name_ends(axes, ends)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw touched rows, and what more context is worth."""
    figure, grid = sheet(
        "ab", 3.4, {"a": "Rows that a context reads", "b": "What more context is worth"}, width_ratios=(1, 1.2)
    )
    touched = pick(data, panel="touched")
    draw_touched(grid["a"], touched)
    draw_worth(grid["b"], data)
    last = pick(data, panel="growth", what="third").iloc[-1]
    more = touched["ci_low"].iloc[-1] > touched["ci_high"].iloc[0]
    headline(figure, HEADLINE, bool(more and last["ci_low"] < 0 < last["ci_high"]), scores.recipe.title)
    return figure
