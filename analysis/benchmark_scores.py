"""Table 3: what dense can do in each task, next to what needs no knowledge, and leads over it in points and bits."""

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.recipe import Recipe
from stemrepro.measures import items
from stemrepro.measures.base import LEAD
from stemrepro.measures.comparison import arm_items
from stemrepro.measures.scores import Scores
from stemrepro.report.results import pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    FAINT,
    PLAIN,
    SMALL,
    draw_means,
    headline,
    look,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect, Unmeasured

HEADLINE = "Models with rows guess the next word right more often than dense, in the mean"
ROWS = {
    "cloze": "next word\nof prose",
    "agreement": "verb after\na noun",
    "agreement_far": "verb after\nanother noun",
    "held_out": "held-out\nbenchmarks",
    "recall": "facts\n(recall)",
    "recall:seen": "facts seen\n(recall)",
    "atlas_heldout": "facts held\nout (control)",
    "gloss_word": "definitions\n(recall)",
    "gloss_word_heldout": "definitions\n(held out)",
}


def row(panel: str, what: str, arm: str, contrast: Effect) -> dict:
    """Return a line of data.csv: a value with its 95% interval over seeds, and the error between items apart."""
    low, high = contrast.interval(0.05)
    return {
        "panel": panel,
        "what": what,
        "arm": arm,
        "value": contrast.mean,
        "ci_low": low,
        "ci_high": high,
        "item_se": contrast.item_se,
    }


def collect(scores: Scores) -> pd.DataFrame:
    """Return accuracy of each arm and task with the task's floors, and differences to dense by group.

    Raises:
        Unmeasured: the scale's text has no items of any task.
    """
    arms = {arm: arm_items(scores, arm).whole() for arm in scores.recipe.arms}
    paper = scores.catalog.paper
    dense, rows = arms["dense"], []
    for task in scores.recipe.tasks:
        if not dense.tasks(task):
            continue
        about = dense.summary["tasks"][task]
        rows += [
            {"panel": "floor", "what": task, "arm": name, "value": value} for name, value in dense.floors(task).items()
        ]
        rows.append({"panel": "truncated", "what": task, "arm": "all", "value": 100 * about["truncated"]})
        rows += [row("accuracy", task, arm, scored.sample("accuracy", task).share()) for arm, scored in arms.items()]
        if task in paper.blocks["table-3-350m"].columns:
            value = paper.row("table-3-350m/dense")[task]
            rows.append({"panel": "paper", "what": task, "arm": "dense", "value": value})
    for score in ("accuracy", "margin"):
        for what in ROWS:
            task, _, seen = what.partition(":")
            own = dense.sample(score, task, bool(seen))
            if np.isfinite(own.by_seed).all():
                rows += [
                    row(f"{score} - dense", what, arm, items.contrast(arms[arm], dense, score, task, bool(seen)))
                    for arm in arms
                    if arm != "dense"
                ]
    if not rows:
        raise Unmeasured("This scale's text has no items of these benchmarks.")
    return pd.DataFrame(rows)


def point(axes: Axes, at: float, data: pd.Series) -> None:
    """Draw a mean with its interval."""
    draw_means(axes, at, data, sideways=True, **look(data["arm"], joined=False))


def draw_accuracy(axes: Axes, data: pd.DataFrame, recipe: Recipe) -> None:
    """Draw a row per task: dense, the paper's dense, and grey up to what makes a task testable."""
    tasks = list(dict.fromkeys(pick(data, panel="accuracy")["what"]))
    for place, task in enumerate(tasks):
        task_rows = pick(data, what=task)
        floor = pick(task_rows, panel="floor")["value"].max()
        axes.barh(place, floor + LEAD, height=0.86, color=FAINT, zorder=0)
        axes.plot([floor, floor], [place - 0.43, place + 0.43], color="black", lw=1.1, ls=(0, (2, 1.2)))
        note(axes, f"{floor:.0f}%", (floor, place - 0.3), (-3, 0), ha="right", color=PLAIN)
        point(axes, place, pick(task_rows, panel="accuracy", arm="dense").iloc[0])
        for value in pick(task_rows, panel="paper", arm="dense")["value"]:
            axes.plot(value, place, "d", mfc="white", mec=ARM_COLOUR["dense"], ms=5)
    note(
        axes,
        "dashed: what needs no knowledge\n(chance, or answers alone);\ngrey: not testable",
        (1, 0.97),
        (0, 0),
        xycoords="axes fraction",
        ha="right",
        va="top",
        color=PLAIN,
    )
    cut = data[(data["panel"] == "truncated") & (data["value"] > 0)].set_index("what")["value"]
    labels = [
        textwrap.fill(recipe.tasks[task].label + (f" ({cut[task]:.0f}% of prompts cut)" if task in cut else ""), 18)
        for task in tasks
    ]
    axes.set_yticks(range(len(tasks)), labels, fontsize=SMALL)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("dense's accuracy (%)")


def draw_differences(axes: Axes, data: pd.DataFrame, score: str, label: str, paper: dict[str, float]) -> None:
    """Draw differences to dense by group of tasks; diamonds are the paper's averages."""
    differences = pick(data, panel=f"{score} - dense")
    groups = [what for what in ROWS if what in set(differences["what"])]
    for place, what in enumerate(groups):
        rows = pick(differences, what=what)
        for shift, (_, line) in zip(np.linspace(-0.3, 0.3, len(rows)), rows.iterrows(), strict=True):
            point(axes, place + shift, line)
            if not place:
                end = (line["ci_high"], place + shift)
                note(axes, ARM_LABEL[line["arm"]], end, (5, 0), color=ARM_COLOUR[line["arm"]])
            if what == "held_out" and line["arm"] in paper:
                axes.plot(paper[line["arm"]], place + shift, "d", mfc="white", mec="black", ms=5, zorder=5)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_yticks(range(len(groups)), [ROWS[what] for what in groups], fontsize=SMALL)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlabel(label)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw dense's accuracies by task, and all arms' differences to them in points and in bits."""
    titles = {"a": "What dense can do", "b": "Lead in accuracy", "c": "Lead in bits"}
    figure, grid = sheet("ab;ac", 5.8, titles)
    draw_accuracy(grid["a"], data, scores.recipe)
    paper = scores.catalog.paper
    averages = {
        arm: paper.value(f"table-3-350m/{arm}/average") - paper.value("table-3-350m/dense/average")
        for arm in ("stem-third", "stem-half", "stem-full")
        if "held_out" in set(data["what"])
    }
    draw_differences(grid["b"], data, "accuracy", f"accuracy above\ndense's (points), {BETTER}", averages)
    draw_differences(grid["c"], data, "margin", f"right answer's lead\nover dense's (bits), {BETTER}", {})
    words = pick(data, panel="accuracy - dense", what="cloze")
    shown = len(words) > 0 and (words["ci_low"] > 0).all()
    headline(figure, HEADLINE, bool(shown), scores.recipe.title)
    return figure
