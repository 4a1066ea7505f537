"""Fig. 1a and 5b: validation loss against tokens and FLOPs, final gaps to dense, and the gap split by token pair."""

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.comparison import loss
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.report.results import or_nan, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    GAIN,
    LESS,
    SMALL,
    draw_band,
    draw_means,
    look,
    one_legend,
    sheet,
)
from stemrepro.verdicts.effect import Effect

PAIRS = ("0", "1-3", "4-31", "32+")


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
    for arm, rows in data.groupby("arm", sort=False):
        axes.plot(rows[x] / unit, rows["value"], **look(arm), ms=3, label=ARM_LABEL[arm])
        draw_band(axes, rows[x] / unit, rows, ARM_COLOUR[arm], alpha=0.15)
    settled = data[data["tokens"] > data["tokens"].max() * 0.15]["value"]
    axes.set_ylim(settled.min() - 0.05, settled.max() + 0.1)
    axes.set(xlabel=label, ylabel=f"{LESS}, prose loss (nats/token)")


def draw_gaps(axes: Axes, data: pd.DataFrame, paper: Paper) -> None:
    """Draw the final gap to dense of every arm; open diamonds are the paper's numbers."""
    final = pick(data, panel="final").reset_index(drop=True)
    for place, row in final.iterrows():
        axes.bar(place, row["value"], color=ARM_COLOUR[row["arm"]], width=0.62)
        draw_means(axes, place, row, color="black", capsize=3, lw=1)
    for place, arm in enumerate(final["arm"]):
        if arm in paper.blocks["fig-5b"].rows:
            value = paper.value("fig-5b/dense/5.45e8") - paper.value(f"fig-5b/{arm}/5.45e8")
            label = "paper, 350M (read off Fig. 5b)" if place == 0 else None
            axes.plot(place, value, marker="d", mfc="white", mec="black", ms=6, ls="none", label=label, zorder=5)
    axes.set_xticks(range(len(final)), [textwrap.fill(ARM_LABEL[arm], 9) for arm in final["arm"]], fontsize=SMALL)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_ylabel(GAIN)
    axes.set_ylim(top=1.25 * np.nanmax(final[["value", "ci_high"]].to_numpy()))
    axes.legend(loc="upper left")


def draw_split(axes: Axes, data: pd.DataFrame) -> None:
    """Draw token part and contextual part of the gap between dense and stem-full, by training count of the pair."""
    places = ("all pairs", *PAIRS)
    for shift, panel, arm, hatch in (
        (-0.2, "token part", "token-only", "//"),
        (0.2, "contextual part", "stem-full", ""),
    ):
        rows = pick(data, panel=panel).set_index("pair_count").loc[list(places)]
        at = np.arange(len(places)) + shift
        axes.bar(at, rows["value"], width=0.38, color=ARM_COLOUR[arm], hatch=hatch, edgecolor="white", label=panel)
        draw_means(axes, at, rows, color="black", capsize=2.5, lw=0.9, ls="none")
    axes.set_xticks(range(len(places)), ["all\npairs", "never", *PAIRS[1:]])
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="training count of the token pair", ylabel="part of the gap (nats/token)")
    axes.legend()


def collect(scores: Scores) -> pd.DataFrame:
    """Return curves and gaps."""
    return pd.concat([curves(scores), gaps(scores)])


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw four panels."""
    curve, gap = pick(data, panel="curve"), data[data["panel"] != "curve"]
    titles = {
        "a": "Loss against tokens",
        "b": "Loss against FLOPs",
        "c": "Final gap to dense",
        "d": "STEM full's gap, split",
    }
    figure, grid = sheet("ab;cd", 5.8, titles)
    by_tokens, by_flops, final, split = grid.values()
    draw_curve(by_tokens, curve, "tokens", 1e6, "training tokens (millions)")
    draw_curve(by_flops, curve, "flops", 1e12, "training FLOPs (TFLOP)")
    draw_gaps(final, gap, scores.catalog.paper)
    draw_split(split, gap)
    one_legend(figure, [by_tokens, by_flops], columns=4)
    return figure
