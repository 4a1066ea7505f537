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
from stemrepro.report.style import HUES, PLAIN, SMALLEST, draw_means, sheet
from stemrepro.verdicts.effect import Effect

SIDES = {
    "dense": ("dense's outputs", "blue", "^"),
    "rows": ("rows", "orange", "D"),
    "random": ("$W_u$ of random directions", "black", "o"),
}
CENTRED = {False: "", True: ", centred"}
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
    """Draw densities of cosines in the up-projection's place."""
    for side, (label, hue, _) in SIDES.items():
        for centred, words in CENTRED.items():
            rows = pick(data, panel="up, density", what=f"{side}{words}")
            if side == "random" and centred:
                continue
            dashes = "--" if centred else "-"
            axes.plot(rows["x"].astype(float), rows["value"], color=HUES[hue], lw=1.2, ls=dashes, label=label + words)
    axes.set(xlabel="cosine of two vectors", ylabel="density", xlim=(-0.4, 1))
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=SMALLEST)


def draw_layers(axes: Axes, data: pd.DataFrame, what: str) -> None:
    """Draw the 95th percentile of |cos| by layer; hollow marks have the mean vector taken off."""
    for side, (label, hue, marker) in SIDES.items():
        for centred, words in CENTRED.items():
            rows = pick(data, panel=f"{what}, by layer", what=f"{side}{words}")
            if rows.empty or (side == "random" and centred):
                continue
            looks = {"ls": "--", "mfc": "white"} if centred else {"ls": "-", "mfc": HUES[hue]}
            draw_means(axes, rows["x"], rows, color=HUES[hue], marker=marker, ms=4, lw=1, **looks, label=label + words)
    floor = pick(data, panel=DIMENSIONS, what=what).iloc[0]
    label = f"free directions, {floor['x']:,.0f} dimensions"
    axes.axhline(floor["value"], color=PLAIN, lw=0.8, ls=":", label=label)
    axes.set(xlabel="layer", ylabel="P95 of |cos|", ylim=(0, 1.9))
    axes.set_yticks([0, 0.5, 1])
    axes.legend(fontsize=SMALLEST, loc="upper left")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw three panels."""
    titles = {"a": "In the up-projection's place", "b": "The same, by layer", "c": "After the gate, by layer"}
    figure, grid = sheet("aa;bc", 6.0, titles)
    draw_density(grid["a"], data)
    draw_layers(grid["b"], data, "up")
    draw_layers(grid["c"], data, "gated")
    return figure
