"""Angles between the tables' rows: against random directions, dense outputs, over training, by frequency; do they
predict loss?
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from stemrepro.config.buckets import BUCKETS, bucket_name
from stemrepro.config.paper import Paper
from stemrepro.measures.geometry import ArmGeometry, arm_geometry, gain_correlation, random_p95, token_gains
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, GAIN, SMALL, draw_means, look, sheet
from stemrepro.verdicts.effect import Effect

FREQUENCIES = tuple(bucket_name(BUCKETS["frequency"], number) for number in range(len(BUCKETS["frequency"])))
SHADES = ("#bdbdbd", "#dbe9f6", "#8fc1e0", "#2f7fbc", "#08306b")
TABLE_ARMS = ("stem-third", "stem-full", "token-only")
CORRELATION, RANKS = "correlation of spread and gain", "ranks of frequency taken out"


def density_rows(arms: dict[str, ArmGeometry]) -> list[dict]:
    """Return densities of cosines: means over seeds and over the layers that STEM 1/3 replaces."""
    third, rows = arms["stem-third"], []
    both = [(arm, f"gated{centred}") for arm in ("dense", "stem-full") for centred in ("", ":centred")]
    wanted = [("stem-third", "rows"), ("dense", "up"), ("dense", "up:centred"), ("stem-full", "up"), *both]
    for arm, key in wanted:
        panel = key.partition(":")[0]
        heights = arms[arm].density(key, third.layers)
        bins = heights.shape[1]
        middles = -1 + 2 * (np.arange(bins) + 0.5) / bins
        for layer, line in [
            (0, heights.mean(axis=0)),
            *(zip(third.layers, heights, strict=True) if panel == "rows" else ()),
        ]:
            label = f"{arm}, {key}" + (f", layer {layer}" if layer else "")
            rows += [
                {"panel": f"density, {panel}", "what": label, "x": x, "value": y}
                for x, y in zip(middles, line, strict=True)
            ]
    return rows


def spread_rows(arms: dict[str, ArmGeometry]) -> list[dict]:
    """Return P95 of |cos| over that of random directions: over training, by training count, by arm and kind."""
    rows = []
    for name in TABLE_ARMS:
        arm = arms[name]
        floor = arm.random("rows")
        for share in sorted(arm.cosines[arm.cosines.what == "rows"]["share"].unique()):
            p95 = arm.mean("p95", "rows", share=share)
            rows.append(mean_row("over training", name, 100 * share, Effect(p95 / floor)))
        for bucket in FREQUENCIES:
            if arm.has("rows", bucket):
                p95 = arm.mean("p95", "rows", bucket=bucket)
                rows.append(mean_row("by training count", name, bucket, Effect(p95 / floor)))
    for name, arm in arms.items():
        for what in ("up", "gated"):
            for centred in (False, True):
                if arm.has(what):
                    p95 = arm.mean("p95", what, centred=centred)
                    label = f"{what}{', centred' if centred else ''}"
                    rows += [
                        mean_row("p95", name, label, Effect(p95)),
                        mean_row("p95 / random", name, label, Effect(p95 / arm.random(what))),
                    ]
    return rows


def token_rows(dense: ArmGeometry, arm: ArmGeometry) -> list[dict]:
    """Return lines per token, lines per bucket of the training count, and correlations of spread and gain.

    A token's line has the mean |cos| of its table row, the loss gained over dense after the token, and its training
    count; all are means over seeds.
    """
    kept, gain, spread, seen = token_gains(dense, arm)
    buckets = np.array(FREQUENCIES)[np.searchsorted(BUCKETS["frequency"], seen.mean(axis=0), side="right") - 1]
    rows = [
        {"panel": "token", "what": bucket, "x": x, "value": y, "token": token}
        for token, bucket, x, y in zip(kept, buckets, spread.mean(axis=0), gain.mean(axis=0), strict=True)
    ]
    for classes in (None, 5, 20, 50):
        what = f"within {classes} classes of frequency" if classes else RANKS
        rows.append(mean_row(CORRELATION, what, "", gain_correlation(dense, arm, classes)))
    for bucket in FREQUENCIES:
        if (buckets == bucket).sum() > 1:
            in_bucket = buckets == bucket
            contrast = Effect(gain[:, in_bucket].mean(axis=1))
            rows.append(mean_row("bucket", bucket, float(spread[:, in_bucket].mean()), contrast))
    return rows


def draw_rows(axes: Axes, data: pd.DataFrame, ffn_width: int) -> None:
    """Draw cosines between the rows of each table, against random directions of that width (Fig. 6a)."""
    densities = pick(data, panel="density, rows")
    layers = [what for what in dict.fromkeys(densities["what"]) if "layer" in what]
    for what, dashes in zip(layers, ("-", (0, (4, 2)), (0, (1, 1))), strict=False):
        line = pick(densities, what=what)
        label = f"trained,{what.split(',')[-1]}"
        axes.plot(line["x"], line["value"], color=ARM_COLOUR["stem-third"], ls=dashes, lw=1.3, label=label)
    x = pick(densities, what=layers[0])["x"].to_numpy(float)
    beta = stats.beta((ffn_width - 1) / 2, (ffn_width - 1) / 2)
    axes.plot(x, beta.pdf((x + 1) / 2) / 2, color="black", lw=1, label=f"random, {ffn_width} dimensions")
    axes.set(xlim=(-0.7, 0.7), xlabel="cosine between two rows (STEM 1/3)", ylabel="density")
    axes.set_ylim(top=1.45 * axes.get_ylim()[1])
    axes.legend(loc="upper left")


def draw_pair(axes: Axes, data: pd.DataFrame, panel: str, key: str) -> None:
    """Draw dense against STEM, raw (solid) and with the mean vector taken off (dashed): Fig. 6b and 6c."""
    densities = pick(data, panel=f"density, {panel}")
    for arm in ("dense", "stem-full"):
        for what, dashes in ((f"{arm}, {key}", "-"), (f"{arm}, {key}:centred", (0, (3, 1.5)))):
            line = pick(densities, what=what)
            if len(line):
                label = ARM_LABEL[arm] + (", centred" if "centred" in what else "")
                axes.plot(line["x"], line["value"], color=ARM_COLOUR[arm], ls=dashes, lw=1.3, label=label)
    axes.set(xlim=(-0.9, 0.9), xlabel="cosine between two tokens' vectors", ylabel="density")
    axes.set_ylim(top=1.35 * axes.get_ylim()[1])
    axes.legend(loc="upper left", ncols=2)


def draw_training(axes: Axes, data: pd.DataFrame, paper: Paper) -> None:
    """Draw P95 of |cos| over the random one, from start to end; diamonds are the paper's three layers."""
    for arm in TABLE_ARMS:
        spreads = pick(data, panel="over training", what=arm)
        draw_means(axes, spreads["x"], spreads, **look(arm), label=ARM_LABEL[arm])
    values = [paper.value(f"fig-6a/{layer}/p95") / random_p95(8192) for layer in ("layer-1", "layer-7", "layer-13")]
    axes.plot([104] * 3, values, "d", mfc="white", mec="black", ms=5, label="paper, 1B (layers 1, 7, 13)")
    axes.axhline(1, color="black", lw=0.8)
    axes.set(xlabel="training (%)", ylabel="P95 of |cos| / random", ylim=(0.9, 2.75))
    axes.legend(loc="upper left")


def draw_frequency(axes: Axes, data: pd.DataFrame) -> None:
    """Draw P95 of |cos| over the random one by the tokens' training counts."""
    spreads = pick(data, panel="by training count")
    places = [bucket for bucket in FREQUENCIES if bucket in set(spreads["x"])]
    for shift, arm in zip((-0.12, 0, 0.12), TABLE_ARMS, strict=True):
        rows = pick(spreads, what=arm)
        at = np.array([places.index(x) for x in rows["x"]]) + shift
        draw_means(axes, at, rows, **look(arm, joined=False), label=ARM_LABEL[arm])
    axes.legend(loc="upper right")
    axes.set_xticks(range(len(places)), ["never" if place == "0" else place for place in places])
    axes.axhline(1, color="black", lw=0.8)
    axes.set(xlabel="training count of the token", ylabel="P95 of |cos| / random", ylim=(0.9, None))


def draw_tokens(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the gain over dense after each token against how close its row lies to the others."""
    tokens = pick(data, panel="token")
    for bucket, colour in zip(FREQUENCIES, SHADES, strict=True):
        dots = pick(tokens, what=bucket)
        if len(dots):
            label = "never" if bucket == "0" else bucket
            axes.plot(dots["x"].astype(float), dots["value"], "o", ms=2, color=colour, mew=0, alpha=0.8, label=label)
    buckets = pick(data, panel="bucket")
    for bucket, colour in zip(FREQUENCIES, SHADES, strict=True):
        means = pick(buckets, what=bucket)
        black = {"mec": "black", "ecolor": "black"}
        draw_means(axes, means["x"], means, fmt="s", color=colour, **black, ms=5, capsize=2, zorder=5)
    ranks = pick(data, panel=CORRELATION, what=RANKS)["value"].item()
    if np.isfinite(ranks):
        words = f"rank correlation with closeness\nat equal count: {-ranks:+.2f}"
        axes.text(0.98, 0.98, words, transform=axes.transAxes, ha="right", va="top", fontsize=SMALL)
        axes.set_ylim(top=1.35 * axes.get_ylim()[1])
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="mean |cos| of the token's row to all others", ylabel=GAIN)
    axes.legend(title="training count", markerscale=2, handletextpad=0.1, loc="upper left")


def collect(scores: Scores) -> pd.DataFrame:
    """Return densities, spreads and tokens."""
    arms = {arm: arm_geometry(scores, arm) for arm in scores.recipe.arms}
    return pd.DataFrame(density_rows(arms) + spread_rows(arms) + token_rows(arms["dense"], arms["stem-full"]))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw six panels."""
    titles = {
        "a": "Rows of a table",
        "b": "In the up-projection's place",
        "c": "After the gate",
        "d": "Over training",
        "e": "By frequency",
        "f": "Spread and gain",
    }
    figure, grid = sheet("ab;cd;ef", 8.4, titles)
    rows, up, gated, training, frequency, tokens = grid.values()
    draw_rows(rows, data, arm_geometry(scores, "stem-third").summary["ffn_width"])
    draw_pair(up, data, "up", "up")
    draw_pair(gated, data, "gated", "gated")
    draw_training(training, data, scores.catalog.paper)
    draw_frequency(frequency, data)
    draw_tokens(tokens, data)
    return figure
