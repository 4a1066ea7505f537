"""Fig. 4 in a published model: what other rows do to its answers, by layers, against another country's rows, patched
outputs of the up-projections and the input embedding. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.model_edits import DAMAGE, EDITS, STUDY, harm, share
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import groups, table
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_MARKER,
    FAINT,
    PLAIN,
    SMALL,
    draw_means,
    headline,
    note,
    sheet,
)

METHODS = {
    "rows": ("the target's rows (their share written)", "full"),
    "patched": ("$W_u x$ of the target's own prompt", "none"),
    "chance": ("a third country's rows", "left"),
}
"""What is put into the layers, and how its marks are filled."""
SETS = {
    "layer 0": "first layer alone",
    "best": "one other layer alone\n(best of {})",
    "third": "layers of STEM 1/3",
    "half": "layers of STEM 1/2",
    "full": "layers of STEM full:\nall but the first",
    "all": "all layers",
}
ARMS = {"third": "stem-third", "half": "stem-half", "full": "stem-full"}
SAID = {
    "before, all": "no edit",
    "one-to-one, layer 0": "Germany's rows in\nthe first layer",
    "one-to-one, full": "in all layers\nbut the first",
    "one-to-one, all": "in all layers",
    "target, all": "prompt about\nGermany",
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


def looks(layers: str) -> dict[str, str]:
    """Return colour and marker of a set of layers: those of the variant that replaces these."""
    arm = ARMS.get(layers)
    return {"color": ARM_COLOUR[arm], "marker": ARM_MARKER[arm]} if arm else {"color": PLAIN, "marker": "o"}


def draw_example(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the most probable word before and after the edit and for the target's own prompt."""
    for place, said in enumerate(SAID):
        first = pick(data, panel=f"Spain to Germany, {said}").iloc[0]
        edited = said.startswith("one")
        axes.barh(place, first["value"], 0.6, color=looks(said.split(", ")[1])["color"] if edited else "#bdbdbd")
        note(axes, f"{first['what'].strip()}: {first['value']:.2f}", (first["value"], place), (3, 0))
    axes.set_yticks(range(len(SAID)), list(SAID.values()), fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set(xlabel="probability of the first choice\nafter 'The capital of Spain is'", xlim=(0, 1.25))
    axes.set_xticks([0, 0.5, 1])


def draw_sets(axes: Axes, data: pd.DataFrame, single: pd.DataFrame) -> None:
    """Draw the share of moved answers by layers that are edited, and by what is put there."""
    for number, (method, (label, fill)) in enumerate(METHODS.items()):
        rows = pick(data, panel="success, published", what=method).set_index("x")
        others = single[single["what"] == method]
        if len(others):
            rows.loc["best"] = others.loc[others["value"].idxmax()]
        for place, layers in enumerate(SETS):
            if layers in rows.index:
                row, at = rows.loc[layers], place + 0.24 * (number - 1)
                style = {"ls": "none", "ms": 4.5, "fillstyle": fill, "mfcalt": "white"}
                draw_means(axes, at, row, sideways=True, **looks(layers), **style)
                if method == "rows":
                    note(axes, f"{row['value']:.0f}%", (row["ci_high"], at), (4, 0), color=looks(layers)["color"])
        axes.plot([], [], "o", color=PLAIN, fillstyle=fill, mfcalt="white", label=label)
    embedding = pick(data, panel="success, published", what="input", x="all")
    draw_means(axes, len(SETS), embedding, sideways=True, color=PLAIN, marker="x", ms=5, ls="none")
    names = [name.format(single["x"].nunique()) for name in SETS.values()]
    axes.set_yticks(range(len(SETS) + 1), [*names, "input embedding\n(no rows)"], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_ylim(len(SETS) + 0.5, -0.5)
    axes.set(xlabel="answers that become the target's (%)", xlim=(-3, 103))
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.62))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw one example, and which layers' rows move answers."""
    figure, grid = sheet(
        "ab", 3.8, {"a": "Spain reads Germany's rows", "b": "All pairs of countries"}, width_ratios=(1, 1.5)
    )
    draw_example(grid["a"], data)
    edits = pick(data, panel="success, published")
    single = edits[edits["x"].astype(str).str.startswith("layer ") & (edits["x"] != "layer 0")]
    draw_sets(grid["b"], data, single)
    rows = pick(edits, what="rows").set_index("x")
    first, share = (rows.loc[layers, "value"] for layers in ("layer 0", "full"))
    message = (
        f"In a real model edits by rows succeed in the first layer, which STEM leaves dense ({first:.0f}%),\n"
        f"and seldom in all the others together ({share:.0f}%), in the mean"
    )
    rest = max(rows.loc["full", "ci_high"], single["ci_high"].max())
    headline(figure, message, bool(rows.loc["layer 0", "ci_low"] > rest), scores.recipe.title)
    return figure
