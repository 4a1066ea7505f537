"""Table 3: benchmark accuracies with both errors, what can be tested and why, differences to dense, margins in bits."""

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
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, BETTER, SMALL, SMALLEST, one_legend, sheet
from stemrepro.verdicts.effect import Effect, Unmeasured

PAPER_ARMS = ("dense", "stem-third", "stem-half", "stem-full")
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
            values = {arm: paper.row(f"table-3-350m/{arm}")[task] for arm in PAPER_ARMS}
            rows += [{"panel": "paper", "what": task, "arm": arm, "value": value} for arm, value in values.items()]
    for score in ("accuracy", "margin"):
        for what in ROWS:
            task, _, seen = what.partition(":")
            own = dense.sample(score, task, bool(seen))
            if np.isfinite(own.by_seed).all():
                level = own.share() if score == "accuracy" else own.contrast()
                rows.append(row(f"{score} of dense", what, "dense", level))
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
    colour = ARM_COLOUR[data["arm"]]
    axes.plot([data["ci_low"], data["ci_high"]], [at, at], color=colour, lw=1.4, solid_capstyle="butt")
    axes.plot(data["value"], at, ARM_MARKER[data["arm"]], color=colour, ms=5, mec="white", mew=0.5, zorder=4)


def draw_accuracy(axes: Axes, data: pd.DataFrame, recipe: Recipe) -> None:
    """Draw a row per task: arms, chance, what needs no knowledge, and where dense makes a task untestable."""
    tasks = list(dict.fromkeys(pick(data, panel="accuracy")["what"]))
    for place, task in enumerate(tasks):
        task_rows = pick(data, what=task)
        floors = pick(task_rows, panel="floor").set_index("arm")["value"]
        limit = floors.max() + LEAD
        accuracies = pick(task_rows, panel="accuracy").set_index("arm", drop=False)
        axes.barh(place, limit, height=0.86, color="#ececec", zorder=0)
        axes.plot([floors["chance"]] * 2, [place - 0.43, place + 0.43], color="black", lw=1.1, ls=(0, (2, 1.2)))
        axes.plot([floors["answers alone"]] * 2, [place - 0.43, place + 0.43], color="#7a5195", lw=1.3)
        shifts = np.linspace(-0.3, 0.3, len(accuracies))
        for shift, (_, line) in zip(shifts, accuracies.iterrows(), strict=True):
            point(axes, place + shift, line)
            for value in pick(task_rows, panel="paper", arm=line["arm"])["value"]:
                axes.plot(value, place + shift, "d", mfc="white", mec=ARM_COLOUR[line["arm"]], ms=4)
        good = accuracies.loc["dense", "value"] >= limit
        floor = textwrap.fill(f"{floors.idxmax().removeprefix('the ')} {floors.max():.0f}%", 15)
        why = "testable" if good else f"not testable:\n{floor}"
        looks = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": SMALLEST}
        axes.text(1.01, place, why, color="black" if good else "#707070", **looks)
    cut = data[(data["panel"] == "truncated") & (data["value"] > 0)].set_index("what")["value"]
    labels = [
        textwrap.fill(recipe.tasks[task].label + (f" ({cut[task]:.0f}% of prompts cut)" if task in cut else ""), 18)
        for task in tasks
    ]
    axes.set_yticks(range(len(tasks)), labels, fontsize=SMALL)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.set_xlim(left=max(0, data[data["panel"].isin(["accuracy", "floor"])]["value"].min() - 12))
    axes.set_xlabel("accuracy (%)")
    name_marks(axes, list(accuracies["arm"]), paper=not pick(data, panel="paper").empty)
    axes.plot([], [], color="black", lw=1.1, ls=(0, (2, 1.2)), label="chance")
    axes.plot([], [], color="#7a5195", lw=1.3, label="answers alone (dense)")
    axes.plot([], [], "s", color="#ececec", ms=8, label="dense below: not testable")


def name_marks(axes: Axes, arms: list[str], paper: bool) -> None:
    """Name the marks, for a legend."""
    for arm in arms:
        axes.plot([], [], color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], label=ARM_LABEL[arm])
    if paper:
        axes.plot([], [], "d", color="black", mfc="white", label="paper (350M, in b of eight tasks)")


def draw_differences(axes: Axes, data: pd.DataFrame, score: str, label: str, paper: dict[str, float]) -> None:
    """Draw differences to dense by group of tasks; diamonds are the paper's averages."""
    differences = pick(data, panel=f"{score} - dense")
    groups = [what for what in ROWS if what in set(differences["what"])]
    for place, what in enumerate(groups):
        rows = pick(differences, what=what)
        for shift, (_, line) in zip(np.linspace(-0.3, 0.3, len(rows)), rows.iterrows(), strict=True):
            point(axes, place + shift, line)
            if what == "held_out" and line["arm"] in paper:
                axes.plot(paper[line["arm"]], place + shift, "d", mfc="white", mec="black", ms=5, zorder=5)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_yticks(range(len(groups)), [ROWS[what] for what in groups], fontsize=SMALL)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlabel(label)
    name_marks(axes, list(dict.fromkeys(differences["arm"])), paper=bool(paper))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw accuracies by task, and differences in points and in bits."""
    recipe = scores.recipe
    titles = {"a": "Accuracy by task", "b": "Difference to dense", "c": "Margin to dense"}
    figure, grid = sheet("ab;ac", 7, titles, width_ratios=(1, 1))
    draw_accuracy(grid["a"], data, recipe)
    paper = scores.catalog.paper
    averages = {
        arm: paper.value(f"table-3-350m/{arm}/average") - paper.value("table-3-350m/dense/average")
        for arm in ("stem-third", "stem-half", "stem-full")
        if "held_out" in set(data["what"])
    }
    draw_differences(grid["b"], data, "accuracy", f"accuracy above\ndense's (points), {BETTER}", averages)
    draw_differences(grid["c"], data, "margin", "arm - dense (bits)", {})
    one_legend(figure, [grid["a"]], columns=3)
    return figure
