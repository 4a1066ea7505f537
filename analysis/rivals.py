"""Reviewers' wish: rivals at equal FLOPs and equal time, and with other memories, also by how often a pair was seen."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.losses import arm_losses
from stemrepro.measures.rivals import loss
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import (
    cost_rows,
    draw_buckets,
    draw_forest,
    draw_robustness,
    mark_settings,
    name_rows,
    robustness_rows,
)
from stemrepro.report.results import mean_row, or_nan, pick
from stemrepro.report.style import ARM_COLOUR, GAIN, headline, name_ends, note, sheet, short
from stemrepro.verdicts.effect import Effect

HEADLINE = (
    "STEM full ends below dense models of as many FLOPs or as long a training step;\n"
    "in such short runs a table read by hashed pairs of tokens (bigrams) ends below STEM full"
)
PAIRS = ("0", "1-3", "4-31", "32+")
SPLIT = ("stem-full", "token-only", "ngram-table", "dense-equal-size")


def collect(scores: Scores) -> pd.DataFrame:
    """Return gains over dense of each arm, at common and tuned learning rates and by pair count, with costs."""
    rows = []
    for arm in scores.recipe.arms:
        rows += cost_rows(scores, arm)
        if arm == "dense":
            continue
        rows.append(mean_row("loss", arm, "common rate", loss(scores, "dense", arm, "prose")))
        rows += robustness_rows(scores, arm)
        pairs = [or_nan(loss, scores, "dense", arm, "prose", pair=bucket) for bucket in PAIRS]
        rows += [mean_row("by pair", arm, bucket, gain) for bucket, gain in zip(PAIRS, pairs, strict=True)]
    flops = {arm: arm_losses(scores, arm).summary["forward_flops_per_token"] for arm in scores.recipe.arms}
    rows += [
        {"panel": "FLOPs over STEM full's", "what": arm, "value": count / flops["stem-full"]}
        for arm, count in flops.items()
    ]
    gain, memory = (loss(scores, "dense", arm, "prose").differences for arm in ("stem-full", "token-only"))
    rows.append(mean_row("share beyond the last token", "stem-full", "", Effect(1 - memory / gain)))
    return pd.DataFrame(rows)


def name_costs(axes: Axes, data: pd.DataFrame, order: list[str]) -> None:
    """Write each arm's FLOPs and parameters right of a panel, as multiples of dense's."""
    for column, what in enumerate(("FLOPs", "parameters")):
        values = pick(data, panel=what).set_index("what")["value"]
        for place, words in enumerate([what, *(f"{values[arm]:.2f}" for arm in order)], -1):
            note(axes, words, (1, place), (18 + 42 * column, 0), xycoords=("axes fraction", "data"), ha="center")


def draw_pairs(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense by training count of the pair."""
    gains, ends = pick(data, panel="by pair"), {}
    draw_buckets(axes, gains, SPLIT, PAIRS)
    for arm in SPLIT:
        last = pick(gains, what=arm, x=PAIRS[-1])["value"].iloc[0]
        ends[short(arm)] = last, ARM_COLOUR[arm]
    axes.set_xticks(range(len(PAIRS)), ["never", *PAIRS[1:]])
    axes.set(xlabel="training count of the pair", ylabel=GAIN)
    name_ends(axes, ends)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw gains over dense with costs, and where they lie."""
    gains = pick(data, panel="loss").sort_values("value", ascending=False)
    order = list(gains["what"])
    titles = {"a": "Gain in prose loss, and costs / dense's", "b": "By count of the pair"}
    figure, grid = sheet("ab", 4.8, titles, width_ratios=(1.4, 1))
    draw_forest(grid["a"], gains, order, GAIN, shift=-0.12)
    draw_robustness(grid["a"], data, order, shift=0.2)
    mark_settings(grid["a"], data)
    grid["a"].legend(loc="lower right", ncols=2, columnspacing=0.8, handletextpad=0.1)
    grid["a"].set_ylim(len(order) + 0.7, -1.5)  # room for the legend, so that none of its marks stands in a row
    name_rows(grid["a"], order)
    name_costs(grid["a"], data, order)
    draw_pairs(grid["b"], data)
    rows = gains.set_index("what")
    ahead = rows.loc["stem-full", "ci_low"] > rows.loc[["dense-equal-flops", "dense-equal-latency"], "ci_high"].max()
    behind = rows.loc["ngram-table", "ci_low"] > rows.loc["stem-full", "ci_high"]
    headline(figure, HEADLINE, bool(ahead and behind), scores.recipe.title)
    return figure
