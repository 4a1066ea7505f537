"""Fig. 1a and 5b: validation loss against tokens and FLOPs, final gaps to dense, and the gap split by token pair."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.comparison import loss
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import or_nan, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    GAIN,
    LESS,
    draw_band,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect

HEADLINE = (
    "STEM full ends below dense after fewer FLOPs;\n"
    "a table without the gate (token-only) has about half of this lead in the mean"
)
PAIRS = ("0", "1-3", "4-31", "32+")
NAMES = {"token-only": "token-only", "stem-frozen": "frozen rows"}
"""Shorter names of controls."""


def numbers(effect: Effect) -> dict:
    """Return a mean with its 95% t interval over seeds, and their number."""
    low, high = effect.interval(0.05)
    return {"value": effect.mean, "ci_low": low, "ci_high": high, "seeds": effect.seeds}


def curves(scores: Scores) -> pd.DataFrame:
    """Return the mean prose loss of each arm at each evaluation with its 95% t interval over seeds."""
    rows = []
    for arm in scores.recipe.arms:
        for tokens, group in arm_losses(scores, arm).whole().curve.groupby("tokens"):
            about = {"panel": "curve", "arm": arm, "tokens": tokens, "flops": float(group["flops"].iloc[0])}
            rows.append(about | numbers(Effect(group["prose"].to_numpy())))
    return pd.DataFrame(rows)


def gaps(scores: Scores) -> pd.DataFrame:
    """Return the final gap of every arm to dense, and token and contextual part of stem-full's gap by pair count."""
    parts = [("final", arm, "all pairs", "dense", arm) for arm in scores.recipe.arms if arm != "dense"]
    for bucket in ("all pairs", *PAIRS):
        parts.append(("token part", "token-only", bucket, "dense", "token-only"))
        parts.append(("contextual part", "stem-full", bucket, "token-only", "stem-full"))
    rows = []
    for panel, arm, bucket, high, low in parts:
        gain = or_nan(loss, scores, high, low, "prose", pair=None if bucket == "all pairs" else bucket)
        rows.append({"panel": panel, "arm": arm, "pair_count": bucket} | numbers(gain))
    return pd.DataFrame(rows)


def draw_curve(axes: Axes, data: pd.DataFrame, x: str, unit: float, label: str) -> None:
    """Draw loss against tokens or FLOPs: a line per arm with its interval as a band."""
    ends = {}
    for arm, rows in data.groupby("arm", sort=False):
        axes.plot(rows[x] / unit, rows["value"], **look(arm), ms=3)
        draw_band(axes, rows[x] / unit, rows, ARM_COLOUR[arm], alpha=0.15)
        ends[NAMES.get(arm, ARM_LABEL[arm])] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    settled = data[data["tokens"] > data["tokens"].max() * 0.15]["value"]
    axes.set_ylim(settled.min() - 0.05, settled.max() + 0.1)
    axes.set(xlabel=label, ylabel=f"{LESS}, prose loss (nats/token)")
    name_ends(axes, ends)


def draw_gaps(axes: Axes, data: pd.DataFrame, paper: Paper) -> None:
    """Draw the final gap to dense of every arm, and the paper's as open diamonds."""
    final = pick(data, panel="final")
    order = list(final["arm"])
    draw_forest(axes, final.assign(what=final["arm"]), order, GAIN)
    for place, row in enumerate(final.itertuples()):
        note(axes, f"{row.value:.2f}", (np.nanmax([row.value, row.ci_high]), place), (5, 0))
        if row.arm in paper.blocks["fig-5b"].rows:
            value = paper.value("fig-5b/dense/5.45e8") - paper.value(f"fig-5b/{row.arm}/5.45e8")
            axes.plot(value, place, marker="d", mfc="white", mec="black", ms=6, ls="none")
            if place == 0:
                note(axes, "paper, 350M", (value, place), (-6, 9))
    name_rows(axes, order)
    axes.set_yticks(range(len(order)), [NAMES.get(arm, ARM_LABEL[arm]) for arm in order])


def draw_split(axes: Axes, data: pd.DataFrame) -> None:
    """Draw token part and contextual part of the gap between dense and stem-full, by training count of the pair."""
    places = ("all pairs", *PAIRS)
    for shift, panel, arm, hatch, words in (
        (-0.2, "token part", "token-only", "//", "token-only below dense"),
        (0.2, "contextual part", "stem-full", "", "STEM full below token-only"),
    ):
        rows = pick(data, panel=panel).set_index("pair_count").loc[list(places)]
        at = np.arange(len(places)) + shift
        axes.bar(at, rows["value"], width=0.38, color=ARM_COLOUR[arm], hatch=hatch, edgecolor="white")
        draw_means(axes, at, rows, color="black", capsize=2.5, lw=0.9, ls="none")
        note(axes, words, (0.2, 0.93 - 0.2 * shift), (0, 0), xycoords="axes fraction", color=ARM_COLOUR[arm])
    axes.set_xticks(range(len(places)), ["all\npairs", "never", *PAIRS[1:]])
    axes.axhline(0, color="black", lw=0.6)
    axes.margins(y=0.15)  # room for names
    axes.set(xlabel="how often training read the pair of tokens", ylabel="lead (nats/token)")


def collect(scores: Scores) -> pd.DataFrame:
    """Return curves and gaps."""
    return pd.concat([curves(scores), gaps(scores)])


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw four panels."""
    curve, gap = pick(data, panel="curve"), data[data["panel"] != "curve"]
    titles = {
        "a": "Loss against tokens",
        "b": "Loss against FLOPs",
        "c": "Lead over dense at the end",
        "d": "STEM full's lead in two parts",
    }
    figure, grid = sheet("ab;cd", 5.8, titles)
    draw_curve(grid["a"], curve, "tokens", 1e6, "training tokens (millions)")
    draw_curve(grid["b"], curve, "flops", 1e12, "training FLOPs (10\u00b9\u00b2)")
    draw_gaps(grid["c"], gap, scores.catalog.paper)
    draw_split(grid["d"], gap)
    lead = pick(gap, panel="final").set_index("arm").loc["stem-full"]
    part = pick(gap, panel="token part", pair_count="all pairs")["value"].iloc[0] / lead["value"]
    flops = curve.groupby("arm")["flops"].max()
    shown = lead["ci_low"] > 0 and 0.4 < part < 0.6 and flops["stem-full"] < flops["dense"]
    headline(figure, HEADLINE, bool(shown), scores.recipe.title)
    return figure
