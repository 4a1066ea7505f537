"""Reviewers' wish: how a table starts, learns, how wide and how long it is and whether layers share it; gains by token
frequency.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.tables import loss, vocabularies
from stemrepro.report.forest import (
    draw_buckets,
    draw_forest,
    draw_robustness,
    mark_settings,
    name_rows,
    robustness_rows,
)
from stemrepro.report.results import mean_row, or_nan, pick
from stemrepro.report.style import ARM_LABEL, BETTER, GAIN, draw_means, look, note, sheet
from stemrepro.verdicts.effect import Effect

FREQUENCIES = ("1-31", "32-255", "256-2047", "2048+")
VOCABULARIES = ("dense", "stem-full")
SPLIT = ("stem-full", "token-only", "stem-fast", "stem-lowrank", "stem-frozen")


def collect(scores: Scores) -> pd.DataFrame:
    """Return gains over dense, in all and by training count of the input token; bits per byte by vocabulary."""
    rows = []
    for arm in scores.recipe.arms:
        tables = arm_losses(scores, arm).summary["parameters"]["tables"]
        rows.append({"panel": "table parameters", "what": arm, "value": tables})
        if arm == "dense":
            continue
        rows.append(mean_row("loss", arm, "", loss(scores, "dense", arm, "prose")))
        for bucket in FREQUENCIES:
            gain = or_nan(loss, scores, "dense", arm, "prose", frequency=bucket)
            rows.append(mean_row("by frequency", arm, bucket, gain))
    for arm in scores.recipe.arms:
        rows += robustness_rows(scores, arm)
    for arm in VOCABULARIES:
        for vocab, losses in vocabularies(scores, arm).items():
            rows.append(mean_row("bits per byte", arm, vocab, Effect(losses.bits_per_byte.to_numpy())))
    first, second = (vocabularies(scores, arm) for arm in VOCABULARIES)
    for vocab in first:
        gain = first[vocab].bits_per_byte - second[vocab].bits_per_byte
        rows.append(mean_row("gain in bits per byte", "stem-full", vocab, Effect(gain.to_numpy())))
        share = 100 * gain / first[vocab].bits_per_byte
        rows.append(mean_row("gain, % of dense's bits per byte", "stem-full", vocab, Effect(share.to_numpy())))
    return pd.DataFrame(rows)


def draw_frequencies(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense by training count of the input token."""
    gains = pick(data, panel="by frequency")
    draw_buckets(axes, gains, SPLIT, FREQUENCIES)
    axes.set(xlabel="training count of the input token", ylabel=GAIN)
    axes.legend(loc="upper right")


def draw_vocabularies(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gain over dense by size of the vocabulary."""
    rows = pick(data, panel="gain in bits per byte")
    at = rows["x"].astype(float)
    draw_means(axes, at, rows, **look("stem-full"))
    for vocab, gain in zip(at, rows["value"], strict=True):
        bits = pick(data, panel="bits per byte", x=vocab).set_index("what")["value"]
        words = "\n".join(f"{ARM_LABEL[arm]} {bits[arm]:.3f}" for arm in VOCABULARIES)
        note(axes, words, (vocab, gain), (10, -4), va="top")
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [f"{vocab:,.0f}" for vocab in at])
    axes.set_xlim(at.min() / 1.3, at.max() * 2.6)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="tokens in the vocabulary", ylabel=f"STEM full's loss below\ndense's (bits/byte), {BETTER}")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw gains over dense, by frequency of the input token, and by vocabulary."""
    gains = pick(data, panel="loss").sort_values("value", ascending=False)
    order = list(gains["what"])
    tokens = scores.scale.training.tokens / 1e6
    titles = {"a": f"Gain after {tokens:.2g}M tokens", "b": "By count of the token", "c": "By vocabulary"}
    figure, grid = sheet("ab;ac", 5.8, titles)
    draw_forest(grid["a"], gains, order, GAIN)
    draw_robustness(grid["a"], data, order, shift=0.25)
    mark_settings(grid["a"], data)
    grid["a"].legend(loc="lower right")
    name_rows(grid["a"], order)
    draw_frequencies(grid["b"], data)
    draw_vocabularies(grid["c"], data)
    return figure
