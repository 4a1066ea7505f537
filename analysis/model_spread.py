"""Fig. 6 in a published model: angles between rows and between what its up-projections give, before and after the gate.
SmolLM2-135M-Instruct, quantised to 4 bits; rows are means over a text, and no training made them.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.geometry import random_p95
from stemrepro.measures.model_spread import COSINES, DENSITY, GROUPS, STUDY, by_layer
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import groups, table
from stemrepro.model.config import layers_of
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, PLAIN, draw_means, headline, look, name_ends, note, sheet
from stemrepro.verdicts.effect import Effect

HEADLINE = (
    "In every layer of a real model, rows of two tokens point in more similar directions\n"
    "than the outputs that these rows would replace"
)
SIDES = {"dense": ("outputs", "dense"), "rows": ("rows", "stem-full")}
"""Name, and the arm whose look it has."""
NAMED = {
    "dense": ("outputs of the up-projections", 0.19),
    "rows": ("rows: means of outputs by token", 0.55),
    "random": ("outputs of the up-projections for random inputs", 0.05),
}
"""Names of densities, and at which cosine they are written."""
CENTRED = {False: "", True: ", centred"}
"""Whether the mean vector is taken off."""
DIMENSIONS = "dimensions"
"""Panel of data.csv with the floor of free directions, of the rank that vectors can have.

W_u gives as many dimensions as it reads, and a product with the gate any.
"""


def collect(scores: Scores) -> pd.DataFrame:
    """Return the 95th percentile of |cos| by layer, and densities: means over all layers but the first."""
    rows, shape = [], table(scores, STUDY, COSINES).iloc[0]
    for (side, what, centred), heights in groups(scores, STUDY, DENSITY, "side", "what", "centred").items():
        p95 = by_layer(scores, side, what, centred)
        for layer, values in p95.items():
            effect = Effect(values.to_numpy(), over=GROUPS)
            rows.append(mean_row(f"{what}, by layer", f"{side}{CENTRED[centred]}", layer, effect))
        inside = heights[heights["layer"].isin(layers_of("full", len(p95.columns)))]
        for cosine, height in inside.groupby("cosine")["density"].mean().items():
            about = {"panel": f"{what}, density", "what": f"{side}{CENTRED[centred]}", "x": cosine}
            rows.append(about | {"value": height})
    ranks = {"up": int(shape["width"]), "gated": int(shape["ffn_width"])}
    rows += [{"panel": DIMENSIONS, "what": what, "x": n, "value": random_p95(n)} for what, n in ranks.items()]
    return pd.DataFrame(rows)


def draw_density(axes: Axes, data: pd.DataFrame) -> None:
    """Draw densities of cosines in the up-projection's place, and name each at its peak."""
    for side, (words, at) in NAMED.items():
        rows = pick(data, panel="up, density", what=side).astype({"x": float}).set_index("x")["value"]
        colour = ARM_COLOUR[SIDES[side][1]] if side in SIDES else PLAIN
        axes.plot(rows.index, rows, color=colour, ls="-" if side in SIDES else ":")
        note(axes, words, (at, rows.iloc[rows.index.get_indexer([at], "nearest")[0]]), (8, 3), color=colour)
    axes.set(xlabel="cosine of the vectors of two tokens, all layers but the first", ylabel="density", xlim=(-0.4, 1))
    axes.set_ylim(bottom=0)


def draw_layers(axes: Axes, data: pd.DataFrame, what: str) -> None:
    """Draw the 95th percentile of |cos| by layer; hollow marks have the mean vector taken off."""
    ends = {}
    for side, (name, arm) in SIDES.items():
        for centred, words in CENTRED.items():
            rows = pick(data, panel=f"{what}, by layer", what=f"{side}{words}")
            draw_means(
                axes,
                rows["x"].astype(int),
                rows,
                **look(arm, hollow=centred) | {"ls": ":" if centred else "-", "ms": 3.5, "lw": 0.9},
            )
            ends[name + words.replace(", centred", ",\nmean removed")] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    floor = pick(data, panel=DIMENSIONS, what=what)["value"].iloc[0]
    axes.axhline(floor, color=PLAIN, lw=0.8, ls=":")
    ends["random"] = floor, PLAIN
    axes.set(xlabel="layer", ylabel="more similar →\n95th percentile of |cosine|", ylim=(0, 1))
    name_ends(axes, ends, 0.145)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw cosines in the up-projection's place, these by layer, and after the gate."""
    titles = {"a": "In the up-projection's place", "b": "The same, by layer", "c": "After the gate, by layer"}
    figure, grid = sheet("aa;bc", 5.4, titles)
    draw_density(grid["a"], data)
    draw_layers(grid["b"], data, "up")
    draw_layers(grid["c"], data, "gated")
    dense, rows = (pick(data, panel="up, by layer", what=side).set_index("x") for side in SIDES)
    headline(figure, HEADLINE, bool((rows["ci_low"] > dense["ci_high"]).all()), scores.recipe.title)
    return figure
