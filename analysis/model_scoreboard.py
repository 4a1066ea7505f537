"""Table 3 in a published model: accuracies before and after rows stand for up-projections, item by item, next to the
model's card, and what the paper's trained STEM gains. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import model_scores
from stemrepro.measures.model_scores import CHANCE, DENSE, MEAN, TASKS, choices, mcnemar, most_frequent, share
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import FAINT, HUES, PLAIN, SMALL, SMALLEST, draw_means, one_legend, sheet

MODELS = {
    "dense": ("dense", "blue", "o"),
    "stem-third": ("STEM 1/3", "orange", "D"),
    "stem-third-trained": ("STEM 1/3, trained on", "green", "^"),
    "stem-full": ("STEM full", "purple", "s"),
}
ROWS = {MEAN: "mean of the six"} | {task: label for task, (label, _) in TASKS.items()}
PAPER = {
    "350M": ("table-3-350m", ("stem-third", "stem-full"), "D"),
    "1B, further training": ("table-4", ("stem-third",), "P"),
}
"""The paper's tables with their models, and a mark."""
COLUMNS = {"mmlu_cloze": "mmlu"}


def collect(scores: Scores) -> pd.DataFrame:
    """Return accuracies, their differences to dense with McNemar's test, floors, and published numbers."""
    rows, paper, scored = [], scores.catalog.paper, model_scores.models(scores)
    card = model_scores.card(scores)
    for task in ROWS:
        rows += [mean_row("accuracy", task, model, share(scores, task, model)) for model in scored]
        rows.append({"panel": CHANCE, "what": task, "value": share(scores, task, CHANCE).mean})
        for model in scored:
            if model != DENSE:
                rows.append(mean_row("less dense", task, model, share(scores, task, model, DENSE)))
    for task, (_, metric) in TASKS.items():
        most = most_frequent(choices(scores, DENSE, task)["right"])
        rows.append({"panel": "always the same answer", "what": task, "value": most})
        for model in scored:
            most = most_frequent(choices(scores, model, task)[metric])
            rows.append({"panel": "one answer", "what": task, "x": model, "value": most})
            if model != DENSE:
                lost, won = model_scores.discordant(scores, task, model)
                counts = {"right in dense alone": lost, "right in it alone": won, "McNemar's p": mcnemar(lost, won)}
                rows += [{"panel": name, "what": task, "x": model, "value": value} for name, value in counts.items()]
        for whose, published in (("card", card.instruct), ("card of the base model", card.base)):
            if task in published:
                rows.append({"panel": whose, "what": task, "value": published[task]})
        for name, (block, models, _) in PAPER.items():
            column = COLUMNS.get(task, task)
            if column in paper.blocks[block].columns:
                dense = paper.value(f"{block}/dense/{column}")
                gains = {model: paper.value(f"{block}/{model}/{column}") - dense for model in models}
                rows += [{"panel": f"paper, {name}", "what": task, "x": k, "value": gain} for k, gain in gains.items()]
    return pd.DataFrame(rows)


def draw_marks(axes: Axes, data: pd.DataFrame, panel: str) -> None:
    """Draw each model's means with their intervals, a row per task."""
    found = [model for model in MODELS if model in set(pick(data, panel=panel)["x"])]
    for number, model in enumerate(found):
        label, hue, marker = MODELS[model]
        rows = pick(data, panel=panel, x=model).set_index("what").loc[list(ROWS)]
        places = [place + 0.5 * (number + 0.5) / len(found) - 0.25 for place in range(len(ROWS))]
        draw_means(axes, places, rows, sideways=True, color=HUES[hue], marker=marker, ms=5, ls="none", label=label)


def name_rows(axes: Axes, names: list[str]) -> None:
    """Set the rows of a panel: the mean first, then a task each."""
    axes.set_yticks(range(len(ROWS)), names, fontsize=SMALL)
    axes.set_ylim(len(ROWS) - 0.5, -0.5)
    axes.axhline(0.5, color=FAINT, lw=1)


def draw_accuracy(axes: Axes, data: pd.DataFrame) -> None:
    """Draw accuracies with chance and the card's."""
    draw_marks(axes, data, "accuracy")
    chance = pick(data, panel=CHANCE).set_index("what")["value"]
    for place, task in enumerate(ROWS):
        axes.plot([chance[task]] * 2, [place - 0.4, place + 0.4], color="black", lw=1.1, ls=(0, (2, 1.2)))
    axes.plot([], [], color="black", lw=1.1, ls=(0, (2, 1.2)), label="chance")
    for whose, colour in (("card", "black"), ("card of the base model", PLAIN)):
        rows = pick(data, panel=whose)
        places = [list(ROWS).index(task) - 0.38 for task in rows["what"]]
        size = 6 if whose == "card" else 4
        axes.plot(rows["value"], places, "d", mfc="white", mec=colour, ms=size, ls="none", label=whose)
    axes.set_xlabel("accuracy (%)")


def draw_differences(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what conversion changes, with McNemar's p."""
    draw_marks(axes, data, "less dense")
    tests = pick(data, panel="McNemar's p").pivot(index="what", columns="x", values="value")
    for place, task in enumerate(ROWS):
        if task in tests.index:
            found = [tests[model][task] for model in MODELS if model in tests]
            words = ", ".join(f"{p:.3f}" if p >= 0.001 else "<0.001" for p in found)
            right = {"transform": axes.get_yaxis_transform(), "ha": "right"}
            axes.text(1.0, place + 0.42, f"p {words}", fontsize=SMALLEST, color=PLAIN, **right)
    axes.axvline(0, color="black", lw=0.6)
    axes.set_xlabel("less dense's accuracy (points)\np: McNemar's test of each model")


def draw_paper(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what the paper's STEM, trained from the start, has above dense."""
    for name, (_, models, marker) in PAPER.items():
        for model in models:
            rows = pick(data, panel=f"paper, {name}", x=model)
            label, hue, _ = MODELS[model]
            places = [list(ROWS).index(task) for task in rows["what"]]
            axes.plot(rows["value"], places, marker, mfc="white", mec=HUES[hue], ls="none", label=f"{label}, {name}")
    axes.axvline(0, color="black", lw=0.6)
    axes.set_xlabel("less dense's (points)")
    axes.legend(fontsize=SMALLEST, loc="upper right")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw three panels that share their rows."""
    titles = {"a": "Accuracy", "b": "What conversion changes", "c": "The paper's models"}
    figure, grid = sheet("abc", 4.6, titles, width_ratios=(1.25, 1, 0.9))
    draw_accuracy(grid["a"], data)
    draw_differences(grid["b"], data)
    draw_paper(grid["c"], data)
    counts = {task: f"\n{len(choices(scores, DENSE, task)):,} items" for task in TASKS}
    name_rows(grid["a"], [label + counts.get(task, "") for task, label in ROWS.items()])
    for letter in "bc":
        name_rows(grid[letter], [""] * len(ROWS))
    one_legend(figure, [grid["a"]], columns=6)
    return figure
