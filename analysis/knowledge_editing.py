"""Fig. 4 and 7 as measurements: how often other rows edit an answer, against controls, by lengths, layers and
relations; shares of cases that were known before. Dense has no rows: what its up-projections give is swapped.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stemrepro.measures.knowledge import before, recall, share_of, trials
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    PLAIN,
    draw_means,
    headline,
    look,
    note,
    sheet,
)
from stemrepro.verdicts.effect import of_share

MAIN = "stem-full"
HEADLINE = "Another country's rows move STEM's answers;\nin a dense model its input embedding moves them all"
SWAPPED = {"rows": "rows", "input": "input embedding"}
NO_TABLE = "no table: outputs of $W_u$"
LENGTHS = {
    "longer-left-pad": "longer: pad left",
    "longer-right-pad": "longer: pad right",
    "longer-copy": "longer: copies",
    "longer-average": "longer: average",
    "longer-input": "longer: input",
    "shorter-subset": "shorter: subset",
    "shorter-average": "shorter: average",
    "shorter-input": "shorter: input",
}
RECALLED = {"told": (True, "told in training"), "never told": (False, "never told")}
PROBABLE = {
    "before": "before the edit",
    "rows": "rows swapped",
    "input": "input embedding\nswapped",
    "both": "both: the target's\nown prompt",
}
MOVED = "target's answer first (%)"


def _by_relation(scores: Scores, method: str) -> list[dict]:
    edits, rows = trials(scores, MAIN, method), []
    moved = edits.values("success")
    for relation in dict.fromkeys(edits.cases["relation"]):
        kept = edits.known & (edits.cases["relation"] == relation).to_numpy()
        if kept.any(axis=1).all():
            means = [100 * moved[seed][kept[seed]].mean() for seed in range(len(kept))]
            rows.append(mean_row("by relation", method, relation, of_share(np.array(means), kept.sum(axis=1))))
    return rows


def collect(scores: Scores) -> pd.DataFrame:
    """Return success of every method in every arm, recall, success by relation, and probabilities of both answers."""
    rows = []
    for arm in scores.recipe.arms:
        for method in arm_table(scores, "edits", arm)["method"].unique():
            rows.append(mean_row("success", arm, method, share_of(scores, arm, "success", method)))
        for name, (was_told, _) in RECALLED.items():
            rows.append(mean_row("recall", arm, name, recall(scores, arm, was_told).share))
    rows.append(mean_row("old", MAIN, "before", before(scores, MAIN), 100))
    for method in ("rows", "input", "both"):
        rows += [mean_row(field, MAIN, method, share_of(scores, MAIN, field, method), 100) for field in ("new", "old")]
    for method in SWAPPED:
        rows += _by_relation(scores, method)
    return pd.DataFrame(rows)


def bars(axes: Axes, at: np.ndarray, rows: pd.DataFrame, colour: str | list[str], hollow: bool = False) -> None:
    """Draw means as bars to the right with their intervals."""
    axes.barh(at, rows["value"], 0.36, fc="white" if hollow else colour, ec=colour)
    draw_means(axes, at, rows, sideways=True, color="black", ls="none", lw=0.9)


def rows_of(axes: Axes, names: list[str], xlabel: str) -> None:
    """Name the rows of a panel of shares, from the top down."""
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel=xlabel, xlim=(0, 103), ylim=(max(len(names), 1) - 0.5, -0.5))


def draw_swaps(axes: Axes, rows: pd.DataFrame, names: dict[str, str], colours: list[str]) -> None:
    """Draw success by the target's rows, filled, and by its input embedding, by name and method."""
    for method, shift in (("rows", -0.2), ("input", 0.2)):
        means = rows.loc[[(name, method) for name in names]]
        bars(axes, np.arange(len(names)) + shift, means, colours, hollow=method == "input")
        for at, (value, end) in enumerate(zip(means["value"], means["ci_high"], strict=True)):
            note(axes, f"{value:.0f}%", (end, at + shift), (3, 0))
    rows_of(axes, list(names.values()), MOVED)
    axes.set_xlim(right=118)  # room for numbers
    axes.set_ylim(top=-1.1)  # and for the legend
    handles = [
        Patch(fc=colour, ec=PLAIN, label=SWAPPED[name]) for name, colour in (("rows", PLAIN), ("input", "white"))
    ]
    axes.legend(handles=handles, loc="upper left", ncols=2, borderaxespad=0, columnspacing=1)


def draw_lengths(axes: Axes, data: pd.DataFrame) -> None:
    """Draw success in names of other lengths."""
    rows = pick(data, panel="success", what=MAIN).set_index("x").loc[list(LENGTHS)]
    bars(axes, np.arange(len(rows)), rows, ARM_COLOUR[MAIN])
    rows_of(axes, list(LENGTHS.values()), MOVED)


def draw_layers(axes: Axes, data: pd.DataFrame) -> None:
    """Draw success against the number of layers whose rows are swapped, from the lowest up."""
    rows = pick(data, panel="success", what=MAIN).set_index("x")
    doses = [name for name in rows.index if name.startswith("layers-")]  # in order, and "rows" is all of them
    shown = rows.loc[[*doses, "rows"]]
    draw_means(axes, np.arange(1, len(shown) + 1), shown, **look(MAIN))
    axes.set(xlabel="tables swapped, from the lowest", ylabel=MOVED, ylim=(0, 103))
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_recall(axes: Axes, data: pd.DataFrame, arms: list[str]) -> None:
    """Draw the facts that each arm recalls, hollow of those that it was never told."""
    for place, arm in enumerate(arms):
        for name, (told, words) in RECALLED.items():
            row = pick(data, panel="recall", what=arm, x=name)
            draw_means(axes, place, row, sideways=True, **look(arm, hollow=not told, joined=False))
            if not place:
                note(axes, words, (row["value"].iloc[0], place), (0, 9), ha="right" if told else "left", color=PLAIN)
    rows_of(axes, [ARM_LABEL[arm] for arm in arms], "answer is first (% of facts)")
    axes.set_ylim(top=-0.9)  # room for words


def draw_probabilities(axes: Axes, data: pd.DataFrame) -> None:
    """Draw probabilities of the source's answer, in grey, and of the target's, before the edit and after it."""
    places = list(PROBABLE)
    for field, words, colour, shift in (
        ("old", "the source's answer", PLAIN, -0.2),
        ("new", "the target's answer", ARM_COLOUR[MAIN], 0.2),
    ):
        rows = pick(data, panel=field, what=MAIN)
        at = np.array([places.index(name) for name in rows["x"]]) + shift
        percent = 100 * rows[["value", "ci_low", "ci_high"]]
        bars(axes, at, percent, colour)
        note(axes, words, (0, at[0]), (3, 0), color="white")
    rows_of(axes, list(PROBABLE.values()), "probability (%)")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw six panels: what is swapped, probabilities, lengths, layers, relations, what was known."""
    titles = {
        "a": "What is swapped",
        "b": "STEM full: other lengths",
        "c": "STEM full: how many layers",
        "d": "What was known before",
        "e": "STEM full: by relation",
        "f": "STEM full: both answers",
    }
    figure, grid = sheet("ab;cd;ef", 7.6, titles)
    arms = list(scores.recipe.arms)
    success = pick(data, panel="success").set_index(["what", "x"])
    draw_swaps(grid["a"], success, {arm: ARM_LABEL[arm] for arm in arms}, [ARM_COLOUR[arm] for arm in arms])
    note(grid["a"], NO_TABLE, (success.loc[("dense", "rows"), "ci_high"], arms.index("dense") - 0.2), (22, 0))
    draw_lengths(grid["b"], data)
    draw_layers(grid["c"], data)
    draw_recall(grid["d"], data, arms)
    relations = pick(data, panel="by relation").set_index(["x", "what"])
    names = {name: name for name in relations.index.get_level_values(0)}
    draw_swaps(grid["e"], relations, names, [ARM_COLOUR[MAIN]] * len(names))
    draw_probabilities(grid["f"], data)
    shown = success.loc[(MAIN, "rows"), "ci_low"] > 50 and success.loc[("dense", "input"), "ci_low"] > 90
    headline(figure, HEADLINE, bool(shown), scores.recipe.title)
    return figure
