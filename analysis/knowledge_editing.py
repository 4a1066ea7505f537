"""Fig. 4 and 7 as measurements: how often other rows edit an answer, against controls, by lengths, layers and
relations. Dense has no rows: what its up-projections give is swapped.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stemrepro.measures.knowledge import before, recall, share_of, spill, trials
from stemrepro.measures.reading import arm_table, array
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
RECALLED = {"told": True, "never told": False}
PAIRS = {
    ("Spain", "Germany"): {
        "before": "before the edit",
        "rows": "{target}'s rows",
        "input": "{target}'s\ninput embedding",
        "both": "prompt about\n{target}",
    },
    ("United Kingdom", "Spain"): {
        "before": "before the edit",
        "longer-left-pad": "{target}'s row last,\npadding before it",
        "longer-right-pad": "{target}'s row first,\npadding after it",
        "longer-copy": "a copy at each\nplace of the name",
    },
}
"""Two countries whose names have as many tokens, and two with a longer source: what `front` shows of their capitals."""
FRONT = (
    "In STEM full Germany's rows make Berlin likelier than Madrid as Spain's capital,\n"
    "in the mean over seeds; a longer name moves furthest with copies of the row"
)
PARTS = 1000
"""Parts of a probability that its scores, which are of 16 bits, tell apart."""
OTHERS = "all others, where\nthe capital moves"
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


def _pair_rows(scores: Scores, source: str, target: str, methods: list[str]) -> list[dict]:
    """Return probabilities of two countries' capitals, before an edit the source's; none where no case is of them."""
    facts, rows = arm_table(scores, "facts", MAIN).set_index(["entity", "relation"]), []
    words = {"old": facts["answer"].get((source, "capital")), "new": facts["answer"].get((target, "capital"))}
    for method in methods:
        edits = trials(scores, MAIN, methods[1] if method == "before" else method)
        ours = (edits.cases[["source", "target", "relation"]] == [source, target, "capital"]).all(axis=1).to_numpy()
        if not ours.any():
            return []
        if method == "before":
            nats = array(arm_table(scores, "answers", MAIN), "nats", "seed", "fact", "prompt")[:, :, -1]
            found = {"old": np.exp(-nats[:, facts.index.get_loc((source, "capital"))].astype(float))}
        else:
            found = {field: edits.values(field)[:, ours].mean(axis=1) for field in words}
        panel = f"{source} to {target}"
        rows += [
            mean_row(panel, words[field], method, of_share(100 * values, PARTS), 100) for field, values in found.items()
        ]
    return rows


def collect(scores: Scores) -> pd.DataFrame:
    """Return success of every method in every arm, recall, success by relation, and probabilities of both answers."""
    rows = []
    for arm in scores.recipe.arms:
        for method in arm_table(scores, "edits", arm)["method"].unique():
            rows.append(mean_row("success", arm, method, share_of(scores, arm, "success", method)))
        for name, was_told in RECALLED.items():
            rows.append(mean_row("recall", arm, name, recall(scores, arm, was_told).share))
    rows.append(mean_row("old", MAIN, "before", before(scores, MAIN), 100))
    for method in ("rows", "input", "both"):
        rows += [mean_row(field, MAIN, method, share_of(scores, MAIN, field, method), 100) for field in ("new", "old")]
    for method in ("rows", "input"):
        rows += _by_relation(scores, method)
    row = mean_row("by relation", "rows", OTHERS, spill(scores, MAIN, MAIN, "rows"))
    rows.append(row | {end: 50 + row[end] for end in ("value", "ci_low", "ci_high")})
    for (source, target), methods in PAIRS.items():
        rows += _pair_rows(scores, source, target, list(methods))
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
        means = rows.reindex([(name, method) for name in names])
        there = np.flatnonzero(means["value"].notna())
        shown = [colours[at] for at in there]
        bars(axes, there + shift, means.iloc[there], shown, hollow=method == "input")
        for at, value, end in zip(there, means["value"].iloc[there], means["ci_high"].iloc[there], strict=True):
            note(axes, f"{value:.0f}%", (end, at + shift), (3, 0))
    rows_of(axes, list(names.values()), MOVED)
    axes.set_xlim(right=118)  # room for numbers
    axes.set_ylim(top=-1.6)  # and for the legend
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


def draw_pair(axes: Axes, data: pd.DataFrame, source: str, target: str) -> list[str]:
    """Draw probabilities of two countries' capitals before and after edits; return both names, the source's first."""
    rows, methods = pick(data, panel=f"{source} to {target}"), PAIRS[source, target]
    capitals = list(rows["what"].unique())
    for number, (capital, colour) in enumerate(zip(capitals, (PLAIN, ARM_COLOUR[MAIN]), strict=True)):
        given = rows[rows["what"] == capital].set_index("x")
        at = np.array([list(methods).index(method) for method in given.index]) + 0.4 * number - 0.2
        bars(axes, at, 100 * given[["value", "ci_low", "ci_high"]], colour)
        for place, (value, end) in zip(at, given[["value", "ci_high"]].to_numpy(), strict=True):
            note(axes, f"{capital} {100 * value:.0f}%", (100 * end, place), (4, 0), color=colour)
    rows_of(axes, [name.format(target=target) for name in methods.values()], "probability (%)")
    axes.set_xlim(right=150)  # room for words
    axes.set_xticks([0, 50, 100])
    return capitals


def front(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw one edit between names of one length and one between names of two lengths."""
    titles = {letter: f"{source} reads {target}" for letter, (source, target) in zip("ab", PAIRS, strict=True)}
    figure, grid = sheet("ab", 3.2, titles)
    shown = True
    for letter, (pair, best) in zip("ab", zip(PAIRS, ("rows", "longer-copy"), strict=True), strict=True):
        rows = pick(data, panel=" to ".join(pair))
        if rows.empty:  # another text may have other cases
            note(grid[letter], "no such case here", (0.5, 0.5), (0, 0), xycoords="axes fraction", ha="center")
            shown = False
            continue
        old, new = draw_pair(grid[letter], data, *pair)
        means = rows.set_index(["what", "x"])["value"]
        shown &= means[new, best] > means[old, best]
    headline(figure, FRONT, bool(shown), scores.recipe.title)
    return figure


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw four panels: what is swapped, lengths of names, layers, relations."""
    titles = {
        "a": "What is swapped",
        "b": "STEM full: other lengths",
        "c": "STEM full: how many layers",
        "d": "STEM full: by relation",
    }
    figure, grid = sheet("ab;cd", 5.2, titles)
    arms = list(scores.recipe.arms)
    success = pick(data, panel="success").set_index(["what", "x"])
    draw_swaps(grid["a"], success, {arm: ARM_LABEL[arm] for arm in arms}, [ARM_COLOUR[arm] for arm in arms])
    note(grid["a"], NO_TABLE, (success.loc[("dense", "rows"), "ci_high"], arms.index("dense") - 0.2), (22, 0))
    draw_lengths(grid["b"], data)
    draw_layers(grid["c"], data)
    relations = pick(data, panel="by relation").set_index(["x", "what"])
    names = {name: name for name in relations.index.get_level_values(0)}
    draw_swaps(grid["d"], relations, names, [ARM_COLOUR[MAIN]] * len(names))
    shown = success.loc[(MAIN, "rows"), "ci_low"] > 50 and success.loc[("dense", "input"), "ci_low"] > 90
    headline(figure, HEADLINE, bool(shown), scores.recipe.title)
    return figure
