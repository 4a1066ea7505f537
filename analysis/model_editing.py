"""Fig. 4 and 7 in a published model: what other rows do to its answers, by layers, against another country's rows,
patched outputs of the up-projections and the input embedding. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.model_edits import DAMAGE, EDITS, STUDY, harm, share
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import groups, table
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import HUES, PLAIN, SMALLEST, draw_means, sheet

METHODS = {
    "rows": ("the target's rows", "orange", "D"),
    "chance": ("another country's rows", "grey", "o"),
    "patched": ("the target's $W_u x$, patched", "blue", "^"),
    "input": ("its input embedding", "black", "s"),
}
SETS = {"third": "1/3", "half": "1/2", "full": "all but\nthe first", "all": "all"}
LENGTHS = {
    "longer: left-pad": "longer: pad left",
    "longer: right-pad": "longer: pad right",
    "longer: copy": "longer: copies",
    "longer: average": "longer: average",
    "shorter: subset": "shorter: subset",
    "shorter: average": "shorter: average",
}
SAID = {
    "before, all": "before",
    "one-to-one, layer 0": "first\nlayer",
    "one-to-one, all": "all\nlayers",
    "one-to-one, full": "all but\nthe first",
    "target, all": "target's\nprompt",
}
"""What is edited in the example, as its panel shows it."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return shares of pairs by method and layers, by lengths of names and by relation, and the example."""
    rows = []
    for relation, model, method, layers in groups(scores, STUDY, EDITS, "relation", "model", "method", "layers"):
        panel = "length" if ":" in method else f"success, {model}"
        moved = share(scores, method, layers, model, relation)
        rows.append(mean_row(panel if relation == "capital" else relation, method, layers, moved))
    for row in table(scores, STUDY, "examples").itertuples():
        panel = f"{row.source} to {row.target}, {row.said}, {row.layers}"
        rows.append({"panel": panel, "what": row.word, "x": row.rank, "value": row.probability})
    for (layers,) in groups(scores, STUDY, DAMAGE, "layers"):
        rows.append(mean_row("damage", "rows", layers, harm(scores, layers)))
    return pd.DataFrame(rows)


def draw_layers(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of moved answers against the one layer that is edited."""
    for method in ("rows", "patched"):
        label, hue, marker = METHODS[method]
        rows = pick(data, panel="success, published", what=method)
        rows = rows[rows["x"].astype(str).str.startswith("layer ")]
        x = rows["x"].str.removeprefix("layer ").astype(int)
        draw_means(axes, x, rows, color=HUES[hue], marker=marker, ms=4, ls="none", label=label)
    axes.set(xlabel="the one layer that is edited", ylabel="answers that become\nthe target's (%)")
    axes.set_ylim(-4, 100)
    axes.legend(fontsize=SMALLEST)


def draw_sets(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of moved answers by set of layers."""
    for number, (method, (label, hue, marker)) in enumerate(METHODS.items()):
        rows = pick(data, panel="success, published", what=method)
        rows = rows[rows["x"].isin(list(SETS))]
        x = [list(SETS).index(name) + 0.12 * (number - 1.5) for name in rows["x"]]
        draw_means(axes, x, rows, color=HUES.get(hue, hue), marker=marker, ms=5, ls="none", label=label)
    axes.set_xticks(range(len(SETS)), list(SETS.values()))
    axes.set_xlim(-0.5, len(SETS) - 0.5)
    axes.set(xlabel="layers", ylabel="answers that become\nthe target's (%)")
    axes.legend(fontsize=SMALLEST)


def draw_lengths(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of moved answers for names of unequal lengths, rows in all layers but the first, and in all."""
    for number, (layers, hue, marker) in enumerate((("full", "orange", "D"), ("all", "green", "o"))):
        rows = pick(data, panel="length", x=layers).set_index("what").reindex(list(LENGTHS))
        y = [place + 0.2 * (number - 0.5) for place in range(len(rows))]
        label = SETS[layers].replace("\n", " ")
        draw_means(axes, y, rows, sideways=True, color=HUES[hue], marker=marker, ms=5, ls="none", label=label)
    axes.set_yticks(range(len(LENGTHS)), list(LENGTHS.values()), fontsize=SMALLEST)
    axes.invert_yaxis()
    axes.set(xlabel="answers that become the target's (%)")
    axes.legend(fontsize=SMALLEST, title="layers", title_fontsize=SMALLEST)


def draw_example(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the four most probable words before and after the edit and for the target's own prompt."""
    place, ticks = 0, []
    for said, label in SAID.items():
        rows = pick(data, panel=f"Spain to Germany, {said}")
        for _, row in rows.iterrows():
            axes.barh(place, row["value"], color=HUES["orange"] if said.startswith("one") else PLAIN, height=0.7)
            axes.text(row["value"] + 0.01, place, row["what"].strip(), va="center", fontsize=SMALLEST)
            ticks.append((place, label if row["x"] == 1 else ""))
            place += 1
        place += 0.6
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks], fontsize=SMALLEST)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set(xlabel="probability after 'The capital of Spain is'", xlim=(0, 1.15))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw four panels."""
    titles = {
        "a": "One layer at a time",
        "b": "Sets of layers",
        "c": "Names of other lengths",
        "d": "Spain read as Germany",
    }
    figure, grid = sheet("ab;cd", 6.2, titles)
    draw_layers(grid["a"], data)
    draw_sets(grid["b"], data)
    draw_lengths(grid["c"], data)
    draw_example(grid["d"], data)
    return figure


def front(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw which layer's rows move answers, and one example."""
    figure, grid = sheet("ab", 3.0, {"a": "Which layer's rows move the answer", "b": "Spain read as Germany"})
    draw_layers(grid["a"], data)
    draw_example(grid["b"], data)
    return figure
