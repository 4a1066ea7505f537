"""Angles between the tables' rows, against dense's outputs, random directions and the paper's rows, over training."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from stemrepro.config.paper import Paper
from stemrepro.measures.geometry import ArmGeometry, arm_geometry, random_p95
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, PLAIN, draw_means, headline, look, name_ends, note, sheet
from stemrepro.verdicts.effect import Effect

TABLE_ARMS = ("stem-third", "stem-full", "token-only")
COMPARED = {"stem-full": ("STEM full's rows", 0.5), "dense": ("dense's $W_u\\,x$", 0.8)}
"""Name of what is compared, and where it stands: a part of the 95th percentile."""
HEADLINE = "Trained rows are spread more widely than dense's outputs, less widely than random rows"


def collect(scores: Scores) -> pd.DataFrame:
    """Return densities of cosines with their 95th percentiles of |cos|, and these over random's during training."""
    arms, rows = {arm: arm_geometry(scores, arm) for arm in scores.recipe.arms}, []
    for name in COMPARED:
        rows += density_rows(name, arms[name], arms["stem-full"].layers)
        rows.append(mean_row("p95", name, "up", Effect(arms[name].mean("p95", "up"))))
    for name in TABLE_ARMS:
        arm = arms[name]
        for share in sorted(arm.cosines[arm.cosines.what == "rows"]["share"].unique()):
            p95 = arm.mean("p95", "rows", share=share)
            rows.append(mean_row("over training", name, 100 * share, Effect(p95 / arm.random("rows"))))
    return pd.DataFrame(rows)


def density_rows(name: str, arm: ArmGeometry, layers: list[int]) -> list[dict]:
    """Return the density of cosines between two tokens' vectors in the up-projection's place, the mean over layers."""
    heights = arm.density("up", layers).mean(axis=0)
    middles = -1 + 2 * (np.arange(len(heights)) + 0.5) / len(heights)
    return [{"panel": "density", "what": name, "x": x, "value": y} for x, y in zip(middles, heights, strict=True)]


def draw_densities(axes: Axes, data: pd.DataFrame, ffn_width: int) -> None:
    """Draw cosines between two rows, between two outputs of dense, and between random directions."""
    for arm, (words, part) in COMPARED.items():
        line = pick(data, panel="density", what=arm)
        x, p95 = line["x"].astype(float), pick(data, panel="p95", what=arm)["value"].item()
        axes.plot(x, line["value"], color=ARM_COLOUR[arm], lw=1.5)
        at = x.searchsorted(part * p95)
        where = x.iloc[at], line["value"].iloc[at]
        note(axes, f"{words}:\n95% of |cos| below {p95:.2f}", where, (6, 8), color=ARM_COLOUR[arm])
    beta = stats.beta((ffn_width - 1) / 2, (ffn_width - 1) / 2)
    axes.plot(x, beta.pdf((x + 1) / 2) / 2, color=PLAIN, lw=1, ls="--")
    p95 = random_p95(ffn_width)
    words = f"random rows of {ffn_width} numbers:\n95% of |cos| below {p95:.2f}"
    note(axes, words, (0.4 * p95, beta.pdf((1 + 0.4 * p95) / 2) / 2), (6, 8), color=PLAIN)
    axes.set(xlim=(-0.75, 1.3), xlabel="cosine of two tokens' vectors", ylabel="density")
    axes.set_ylim(bottom=0)


def draw_training(axes: Axes, data: pd.DataFrame, paper: Paper) -> None:
    """Draw the 95th percentile of |cos| over random's, from start to end, and that of the paper's three layers."""
    ends = {}
    for arm in TABLE_ARMS:
        spreads = pick(data, panel="over training", what=arm)
        draw_means(axes, spreads["x"].astype(float), spreads, **look(arm))
        ends[f"{ARM_LABEL[arm]}: {spreads['value'].iloc[-1]:.2f}"] = spreads["value"].iloc[-1], ARM_COLOUR[arm]
    values = [paper.value(f"fig-6a/{layer}/p95") / random_p95(8192) for layer in ("layer-1", "layer-7", "layer-13")]
    axes.plot([104] * 3, values, "d", color="black", mfc="white", ms=5)
    note(axes, "the paper's 1B,\nlayers 1, 7, 13", (104, min(values)), (-8, 0), ha="right")
    axes.axhline(1, color="black", lw=0.8)
    note(axes, "random rows", (100, 1), (0, 6), ha="right", color=PLAIN)
    axes.set(xlabel="training (%)", ylabel="95th percentile of |cos|,\nas multiple of random rows'", ylim=(0.9, None))
    name_ends(axes, ends)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw densities of cosines on the left, their 95th percentiles over training on the right."""
    figure, grid = sheet("ab", 3.5, {"a": "What the gate multiplies, at the end", "b": "All rows, over training"})
    draw_densities(grid["a"], data, arm_geometry(scores, "stem-full").summary["ffn_width"])
    draw_training(grid["b"], data, scores.catalog.paper)
    p95 = pick(data, panel="p95").set_index("what")
    last = pick(data, panel="over training").groupby("what").last().loc[["stem-third", "stem-full"]]
    below_dense = p95.loc["stem-full", "ci_high"] < p95.loc["dense", "ci_low"]
    headline(figure, HEADLINE, bool(below_dense and (last["ci_low"] > 1).all()), scores.recipe.title)
    return figure
