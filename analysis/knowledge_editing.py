"""Fig. 4 and 7 as measurements: how often other rows edit an answer, against controls, by lengths, layers and
relations; shares of cases that were known before, in b, e and f of STEM full.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.knowledge import closer, recall, share_of, trials
from stemrepro.measures.reading import arm_table
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    ARM_MARKER,
    FAINT,
    SMALLEST,
    draw_means,
    look,
    one_legend,
    sheet,
)
from stemrepro.verdicts.effect import of_share

MAIN = "stem-full"
EXCHANGED = {
    "rows": "rows of the target",
    "input": "input embedding",
    "both": "both (the target's prompt)",
    "random": "rows by chance",
    "wrong-layer": "rows of another layer",
    "average": "average of the rows",
}
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
EXAMPLE = ("Spain", "Germany", "capital")


def _by_relation(scores: Scores, method: str) -> list[dict]:
    edits, rows = trials(scores, MAIN, method), []
    moved = edits.values("success")
    for relation in dict.fromkeys(edits.cases["relation"]):
        kept = edits.known & (edits.cases["relation"] == relation).to_numpy()
        if kept.any(axis=1).all():
            means = [100 * moved[seed][kept[seed]].mean() for seed in range(len(kept))]
            rows.append(mean_row("by relation", method, relation, of_share(np.array(means), kept.sum(axis=1))))
    return rows


def _example(scores: Scores) -> list[dict]:
    """Return probabilities of the target's answer after the edit: every case, and the paper's example."""
    edits = trials(scores, MAIN, "rows")
    new = np.where(edits.known, edits.values("new"), np.nan)
    spread = np.nanquantile(new, np.linspace(0, 1, 101)) if edits.known.any() else []
    rows = [
        {"panel": "probability of the new answer", "what": "cases", "x": place / 100, "value": value}
        for place, value in enumerate(spread)
    ]
    which = (edits.cases[["source", "target", "relation"]] == EXAMPLE).all(axis=1).to_numpy()
    if which.any():
        mean = float(np.nanmean(new[:, which]))
        rows.append({"panel": "probability of the new answer", "what": "example", "x": "", "value": mean})
    return rows


def collect(scores: Scores) -> pd.DataFrame:
    """Return success of every method in every arm, recall, the example, and success by relation."""
    rows = []
    for arm in scores.recipe.arms:
        for method in arm_table(scores, "edits", arm)["method"].unique():
            rows.append(mean_row("success", arm, method, share_of(scores, arm, "success", method)))
            rows.append(mean_row("kept", arm, method, share_of(scores, arm, "kept", method)))
            rows.append(mean_row("closer", arm, method, closer(scores, arm, "", method)))
            for field in ("new", "old"):
                rows.append(mean_row(field, arm, method, share_of(scores, arm, field, method), 100))
            others = share_of(scores, arm, "success", method, known_before=False)
            if np.isfinite(others.differences).all():
                rows.append(mean_row("success where not known before", arm, method, others))
        for name, was_told, held_out in (
            ("told, held-out template", True, True),
            ("told, trained templates", True, False),
            ("never told", False, True),
        ):
            rows.append(mean_row("recall", arm, name, recall(scores, arm, was_told, held_out).share))
    for method in ("rows", "input"):
        rows += _by_relation(scores, method)
    return pd.DataFrame(rows + _example(scores))


def _dots(axes: Axes, rows: pd.DataFrame, names: dict[str, str], arms: list[str]) -> None:
    """Draw a row per method with a dot per arm."""
    shifts = np.linspace(-0.32, 0.32, len(arms)) if len(arms) > 1 else [0.0]
    for shift, arm in zip(shifts, arms, strict=True):
        means = pick(rows, what=arm).set_index("x").reindex(names)
        places = np.arange(len(names)) + shift
        draw_means(axes, places, means, sideways=True, **look(arm, joined=False), label=ARM_LABEL[arm])
    axes.set_yticks(range(len(names)), names.values())
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-3, 103)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_xlabel("target's answer first (%)")


def draw_layers(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw success against the number of layers whose rows are exchanged, from the lowest up."""
    for arm in scores.recipe.arms:
        rows = pick(data, panel="success", what=arm).set_index("x")
        doses = [name for name in rows.index if name.startswith("layers-")]  # in order, and "rows" is all of them
        shown = rows.loc[[*doses, "rows"]]
        counts = np.arange(1, len(shown) + 1)
        draw_means(axes, counts, shown, **look(arm), label=ARM_LABEL[arm])
    axes.set(xlabel="tables exchanged (lowest first)", ylabel="target's answer first (%)", ylim=(-3, 103))
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_example(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of cases below each probability of the new answer, and where the paper's example lies."""
    probabilities = pick(data, panel="probability of the new answer")
    cases, example = pick(probabilities, what="cases"), pick(probabilities, what="example")
    axes.plot(cases["value"].astype(float), 100 * cases["x"].astype(float), color=ARM_COLOUR[MAIN], lw=1.3)
    for value in example["value"]:
        axes.axvline(value, color="black", lw=0.8, ls=":")
        axes.text(value, 8, " Spain to Germany,\n capital ", fontsize=SMALLEST, ha="right" if value > 0.5 else "left")
    axes.set(xlabel="probability of the new answer", ylabel="cases below (%)", xlim=(0, 1), ylim=(0, 100))


def draw_recall(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the facts recalled by each arm."""
    recalls = pick(data, panel="recall")
    names = list(dict.fromkeys(recalls["x"]))
    arms = list(dict.fromkeys(recalls["what"]))
    for shift, arm in zip(np.linspace(-0.3, 0.3, len(arms)), arms, strict=True):
        rows = pick(recalls, what=arm).set_index("x").reindex(names)
        places = np.arange(len(names)) + shift
        draw_means(axes, places, rows, sideways=True, **look(arm, joined=False), label=ARM_LABEL[arm])
    axes.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axes.set(xlabel="answer is first (% of facts)", xlim=(-3, 103), ylim=(len(names) - 0.5, -0.5))


def draw_relations(axes: Axes, data: pd.DataFrame) -> None:
    """Draw success by relation, for rows and for the input embedding."""
    successes = pick(data, panel="by relation")
    names = list(dict.fromkeys(successes["x"]))
    for shift, (method, fill) in zip((-0.12, 0.12), (("rows", "full"), ("input", "none")), strict=True):
        rows = pick(successes, what=method).set_index("x").reindex(names)
        places = np.arange(len(names)) + shift
        draw_means(axes, places, rows, sideways=True, fmt=ARM_MARKER[MAIN], color=ARM_COLOUR[MAIN], fillstyle=fill)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="target's answer first (%), STEM full", xlim=(-3, 103), ylim=(len(names) - 0.5, -0.5))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw six panels: what is exchanged, lengths, layers, what was known, relations, the example among all cases."""
    titles = {
        "a": "What is exchanged",
        "b": "Names of other lengths",
        "c": "In how many layers",
        "d": "What was known before",
        "e": "By relation (open: input)",
        "f": "The paper's example",
    }
    figure, grid = sheet("ab;ac;de;df", 8.4, titles)
    success = pick(data, panel="success")
    _dots(grid["a"], success, EXCHANGED, list(scores.recipe.arms))
    one_legend(figure, [grid["a"]], columns=6)
    _dots(grid["b"], success, LENGTHS, [MAIN])
    grid["b"].set_xlabel("target's answer first (%), STEM full")
    draw_layers(grid["c"], data, scores)
    draw_recall(grid["d"], data)
    draw_relations(grid["e"], data)
    draw_example(grid["f"], data)
    return figure
