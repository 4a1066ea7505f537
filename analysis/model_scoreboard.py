"""Table 3 in a published model: accuracies before and after rows stand for up-projections, item by item.
SmolLM2-135M-Instruct, quantised to 4 bits.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import model_scores
from stemrepro.measures.model_scores import CHANCE, DENSE, MEAN, TASKS, choices, mcnemar, most_frequent, share
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
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

HEADLINE = (
    "Table rows at once take most of a real model's lead over chance, in the mean of six tasks;\n"
    "a short training gives a part back in the mean"
)
MODELS = {
    "dense": ("dense", "dense"),
    "stem-third": ("STEM 1/3", "stem-third"),
    "stem-third-trained": ("STEM 1/3,\ntrained on (hollow)", "stem-third"),
    "stem-full": ("STEM full", "stem-full"),
}
"""Name, and the arm whose look it has."""
PAPER = "table-3-350m"
CLEAR = 0.01
"""Values of McNemar's p below it are written."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return accuracies, their differences to dense with McNemar's test, floors, and published numbers."""
    rows, paper, scored = [], scores.catalog.paper, model_scores.models(scores)
    card = model_scores.card(scores)
    for task in (MEAN, *TASKS):
        rows += [mean_row("accuracy", task, model, share(scores, task, model)) for model in scored]
        rows.append({"panel": CHANCE, "what": task, "value": share(scores, task, CHANCE).mean})
        for model in scored:
            if model != DENSE:
                rows.append(mean_row("less dense", task, model, share(scores, task, model, DENSE)))
    for task, (_, metric) in TASKS.items():
        for model in scored:
            most = most_frequent(choices(scores, model, task)[metric])
            rows.append({"panel": "one answer", "what": task, "x": model, "value": most})
            if model != DENSE:
                lost, won = model_scores.discordant(scores, task, model)
                counts = {"right in dense alone": lost, "right in it alone": won, "McNemar's p": mcnemar(lost, won)}
                rows += [{"panel": name, "what": task, "x": model, "value": value} for name, value in counts.items()]
        if task in card.instruct:
            rows.append({"panel": "card", "what": task, "value": card.instruct[task]})
        if task in paper.blocks[PAPER].columns:
            gain = paper.value(f"{PAPER}/stem-third/{task}") - paper.value(f"{PAPER}/dense/{task}")
            rows.append({"panel": "paper, 350M", "what": task, "x": "stem-third", "value": gain})
    return pd.DataFrame(rows)


def looks(model: str) -> dict[str, Any]:
    """Return the look of a model's marks."""
    return look(MODELS[model][1], hollow="trained" in model, joined=False) | {"ms": 5}


def draw_mean(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the mean accuracy over tasks with chance's."""
    for place, model in enumerate(MODELS):
        row = pick(data, panel="accuracy", what=MEAN, x=model).iloc[0]
        draw_means(axes, place, row, sideways=True, **looks(model))
        note(axes, f"{row['value']:.1f}", (row["value"], place), (0, 9), ha="center", color=looks(model)["color"])
    chance = pick(data, panel=CHANCE, what=MEAN)["value"].iloc[0]
    axes.axvline(chance, color=PLAIN, lw=0.8, ls=":")
    note(axes, f"chance: {chance:.1f}", (chance, -0.45), (3, 0), color=PLAIN)
    axes.set_yticks(range(len(MODELS)), [name for name, _ in MODELS.values()], fontsize=SMALL)
    axes.set_ylim(len(MODELS) - 0.5, -0.7)
    axes.set_xlabel(f"accuracy (%), {BETTER}")


def draw_tasks(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what conversion changes in each task, and McNemar's p where it is clear."""
    tests = pick(data, panel="McNemar's p").set_index(["what", "x"])["value"]
    for place, task in enumerate(TASKS):
        for number, model in enumerate(list(MODELS)[1:]):
            row, at = pick(data, panel="less dense", what=task, x=model).iloc[0], place + 0.25 * (number - 1)
            draw_means(axes, at, row, sideways=True, **looks(model))
            if tests[task, model] < CLEAR:
                words = f"p {tests[task, model]:.3f}" if tests[task, model] >= 0.001 else "p <0.001"
                end, side, ha = ("ci_high", 4, "left") if row["value"] > 0 else ("ci_low", -4, "right")
                note(axes, words, (row[end], at), (side, 0), ha=ha, color=looks(model)["color"])
    same = pick(data, panel="one answer", what="boolq", x=DENSE)["value"].iloc[0]
    words = f"dense gives one answer\nto {same:.0f}% of these"
    note(axes, words, (0.01, list(TASKS).index("boolq")), (0, 0), xycoords=axes.get_yaxis_transform(), color=PLAIN)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_ylim(len(TASKS) - 0.5, -0.5)
    axes.set_xlim(left=-28)
    axes.set_xlabel(f"accuracy less dense's (points), {BETTER}\np of McNemar's test where it is below {CLEAR}")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the mean over tasks, and what conversion changes in each."""
    figure, grid = sheet("ab", 4.2, {"a": "Mean of six tasks", "b": "Change by task"}, width_ratios=(1, 1.3))
    draw_mean(grid["a"], data)
    draw_tasks(grid["b"], data)
    names = [f"{label}\n{len(choices(scores, DENSE, task)):,} items" for task, (label, _) in TASKS.items()]
    grid["b"].set_yticks(range(len(names)), names, fontsize=SMALL)
    for axes in grid.values():
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", color=FAINT, lw=0.8)
    means = pick(data, panel="accuracy", what=MEAN).set_index("x")["value"]
    lead = means[DENSE] - pick(data, panel=CHANCE, what=MEAN)["value"].iloc[0]
    lost = means[DENSE] - means[["stem-third", "stem-full"]]
    back = means["stem-third-trained"] > means["stem-third"]
    headline(figure, HEADLINE, bool((lost > lead / 2).all() and back), scores.recipe.title)
    return figure
