"""What is STEM worth, and does it grow or shrink with tokens a parameter? Leads, their parts, and others' leads."""

from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from stemrepro.config.paper import Paper
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scaling import (
    lead,
    loss,
    over_law,
    parameters,
    tokens_a_parameter,
    wider_dense,
    widths,
)
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    GAIN,
    LESS,
    PLAIN,
    SMALL,
    draw_means,
    error_bars,
    headline,
    look,
    name_ends,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect

STEM = ("stem-third", "stem-full")
PARTS = {
    "token part": ("dense", "token-only"),
    "contextual part": ("token-only", "stem-full"),
    "table at equal FLOPs": ("up-removed", "stem-full"),
    "up-projection without a table": ("up-removed", "dense"),
    "up-projection next to a table": ("stem-full", "stem-dagger-full"),
    "memory part": ("dense", "input-add"),
    "gated rest": ("input-add", "stem-full"),
}
LOOKS = {
    "table at equal FLOPs": ("stem-full", "-", "STEM full over no W_u"),
    "contextual part": ("token-only", "--", "STEM full over token-only"),
    "up-projection without a table": ("dense", "-", "dense over no W_u"),
    "token part": ("token-only", "-", "token-only over dense"),
    "up-projection next to a table": ("stem-dagger-full", "-", "STEM full + W_u over it"),
}
"""Arm whose colour and marker a part has, its line and its name."""
AT_FLOPS = ("dense", "up-removed", "token-only", *STEM)
RIVALS = ("stem-full", "ngram-table", "bigram-input", "input-add", "value-embeddings")
COMPARED = ("stem-full", "ngram-table")
HEADLINE = "STEM is still ahead of dense after as many tokens per parameter as the paper's 350M"
LABEL = {"up-removed": "no W_u (control)", "input-add": "dense + a row per token"}
PARAMETERS = ("dense", "stem-third", "stem-full")
"""Arms that were trained at both widths."""
PAIRS = {"0": "never read", "1-3": "1-3 times", "4-31": "4-31 times", "32+": "32 or more"}
TOKENS = "training tokens a parameter (dense's)"


def collect(scores: Scores) -> pd.DataFrame:
    """Return all that is drawn or cited, a line per number: leads, their parts, losses at equal FLOPs, others."""
    rows, places, arms = rival_rows(scores.catalog.paper), tokens_a_parameter(scores), scores.recipe.arms
    wider = [width for width in widths(scores) if width != 1]
    for width in widths(scores):
        at = "" if width == 1 else f", width x {width:g}"
        for (rung, x), arm in product(tokens_a_parameter(scores, width).items(), STEM):
            rows.append(mean_row(f"gap, %{at}", arm, x, lead(scores, "dense", arm, rung)))
    for rung, x in places.items():
        rows += [mean_row("part", what, x, gap(scores, *pair, rung)) for what, pair in PARTS.items()]
        rows += [mean_row("over dense's law", arm, x, over_law(scores, arm, rung)) for arm in AT_FLOPS]
        rows += [mean_row("gap to dense", arm, x, gap(scores, "dense", arm, rung)) for arm in arms if arm != "dense"]
        rows.append(mean_row("pair", " - ".join(COMPARED), x, gap(scores, *COMPARED, rung)))
        rows += pair_rows(scores, rung, x)
    for width, arm in product(widths(scores), PARAMETERS):
        counts, dense = parameters(scores, arm, width), parameters(scores, "dense", width)
        rows.append({"panel": "parameters", "what": arm, "x": width, "value": counts["total"]})
        rows.append({"panel": "tables over dense", "what": arm, "x": width, "value": counts["tables"] / dense["total"]})
    tables = parameters(scores, "input-add")["tables"] / parameters(scores, "dense")["total"]
    rows.append({"panel": "tables over dense", "what": "input-add", "x": 1.0, "value": tables})
    rows += [
        mean_row("wider dense", "stem-full", x, wider_dense(scores, "stem-full", rung))
        for width in wider
        for rung, x in tokens_a_parameter(scores, width).items()
    ]
    return pd.DataFrame(rows)


def gap(scores: Scores, high: str, low: str, rung: str) -> Effect:
    """Return the difference of two arms' prose losses at a rung."""
    return loss(scores, high, low, "prose", at=rung)


def pair_rows(scores: Scores, rung: str, x: float) -> list[dict]:
    """Return STEM full's gaps by training count of the pair, as far as a rung has pairs of that count."""
    lines = arm_losses(scores, "dense", rung).losses
    there = set(lines.loc[lines["by"] == "pair", "bucket"])
    return [
        mean_row("by pair", bucket, x, loss(scores, "dense", "stem-full", "prose", pair=bucket, at=rung))
        for bucket in PAIRS
        if bucket in there
    ]


def rival_rows(paper: Paper) -> list[dict]:
    """Return the paper's Fig. 1a and the independent re-runs, each at its own tokens per parameter.

    Gaps are in % of dense's loss, which has no unit to convert.
    """
    dense, stem, rows = paper.row("fig-1a/dense"), paper.row("fig-1a/stem-third"), []
    size = paper.value("table-3-1b/dense/total")
    for column, perplexity in dense.items():
        tokens = 1000 * float(column.removesuffix("T"))
        value = 100 * (1 - np.log(stem[column]) / np.log(perplexity))
        rows.append({"panel": "gap, %, paper", "what": "1b", "x": tokens / size, "value": value})
    for column, bits in paper.row("others-loss/dense").items():
        x = paper.value(f"others-loss/tokens/{column}") / paper.value(f"others-loss/parameters/{column}")
        value = 100 * (1 - paper.value(f"others-loss/stem-half/{column}") / bits)
        rows.append({"panel": "gap, %, re-runs", "what": column, "x": x, "value": value})
    return rows


def line(axes: Axes, rows: pd.DataFrame, arm: str, style: str = "-", hollow: bool = False) -> None:
    """Draw means along tokens per parameter with 95% intervals over seeds."""
    looks = look(arm, hollow) | {"ls": style, "ms": 4.5, "lw": 1.1, "capsize": 2}
    draw_means(axes, rows["x"], rows, **looks)


def rung_names(places: Iterable[float]) -> list[str]:
    """Return what rungs are called at an axis."""
    return [f"{place:.2g}" if place < 10 else f"{place:.0f}" for place in places]


def along(axes: Axes, data: pd.DataFrame, ylabel: str) -> None:
    """Make the x axis a log axis of tokens per parameter with a tick per rung."""
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="gap, %")["x"].astype(float).unique())
    axes.set_xticks(ticks, rung_names(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=TOKENS, ylabel=ylabel)


def draw_gaps(axes: Axes, data: pd.DataFrame, scores: Scores) -> None:
    """Draw leads in % of dense's loss, hollow where the model is wider, the paper's and the re-runs' (single runs)."""
    ends = {}
    for width, arm in product(widths(scores), STEM):
        wide = width != 1
        gaps = pick(data, panel=f"gap, %, width x {width:g}" if wide else "gap, %", what=arm)
        line(axes, gaps, arm, ":" if wide else "-", wide)
        last = gaps.loc[gaps["x"].astype(float).idxmax()]
        if not wide:
            words = f"{ARM_LABEL[arm]}: {last['value']:.1f}%\n({last['ci_low']:.1f} to {last['ci_high']:.1f})"
            ends[words] = last["value"], ARM_COLOUR[arm]
        elif arm == STEM[0]:
            words, end = f"hollow: {width:g} times as wide", (float(last["x"]), last["value"])
            note(axes, words, end, (6, 0), color=ARM_COLOUR[arm])
    axes.axhline(0, color="black", lw=0.6)
    paper, others = (pick(data, panel=f"gap, %, {name}") for name in ("paper", "re-runs"))
    axes.plot(paper["x"].astype(float), paper["value"], color="black", ls=":", lw=1.2)
    ends["paper: 1/3, 1B"] = paper["value"].iloc[-1], "black"
    axes.plot(others["x"].astype(float), others["value"], "*", color=PLAIN, ms=6)
    for row in others.itertuples():
        first = float(row.x) == others["x"].astype(float).min()
        side, at = ("right", (-5, 6)) if first else ("left", (5, -6))
        note(axes, f"MoME {row.what.upper()}", (float(row.x), row.value), at, ha=side, color=PLAIN)
    along(axes, data, f"loss below dense's (%), {BETTER}")
    name_ends(axes, ends, 0.12)


def draw_parts(axes: Axes, data: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """Draw what the gap of STEM full is made of, and return where each part ends."""
    ends = {}
    for what, (arm, style, words) in LOOKS.items():
        part = pick(data, panel="part", what=what)
        line(axes, part, arm, style, style != "-")
        ends[words] = part["value"].iloc[-1], ARM_COLOUR[arm]
    return ends


def draw_arms(axes: Axes, data: pd.DataFrame, panel: str, arms: tuple[str, ...]) -> dict[str, tuple[float, str]]:
    """Draw a panel of data.csv along tokens per parameter, a line per arm, and return where each ends."""
    ends = {}
    for arm in arms:
        rows = pick(data, panel=panel, what=arm)
        line(axes, rows, arm)
        ends[LABEL.get(arm, ARM_LABEL[arm])] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    return ends


def draw_pairs(axes: Axes, data: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """Draw STEM full's lead by training count of the pair, and return where each ends."""
    ends, shades = {}, sns.light_palette(ARM_COLOUR["stem-full"], len(PAIRS) + 2)[2:]
    for (bucket, words), shade, marker in zip(PAIRS.items(), shades, "os^D", strict=True):
        rows = pick(data, panel="by pair", what=bucket)
        draw_means(axes, rows["x"], rows, color=shade, marker=marker)
        if len(rows):
            ends[words] = rows["value"].iloc[-1], shade
    return ends


def draw_stack(axes: Axes, data: pd.DataFrame) -> None:
    """Stack both parts of STEM full's gap at each rung: what a row of the token gives to dense, and what is beyond it.

    An interval is that of the part whose top it is at.
    """
    memory, rest = (pick(data, panel="part", what=name) for name in ("memory part", "gated rest"))
    x, total = np.arange(len(memory)), memory["value"].to_numpy() + rest["value"].to_numpy()
    for rows, below, arm, hatch, label in (
        (memory, 0, "input-add", "//", "a row of the token, added to dense"),
        (rest, memory["value"], "stem-full", "", "what STEM full has beyond that, with its interval"),
    ):
        looks = {"color": ARM_COLOUR[arm], "hatch": hatch, "ec": "white", "lw": 0.8}
        axes.bar(x, rows["value"], 0.6, bottom=below, **looks, label=label)
    draw_means(axes, x - 0.12, memory, color="black", ls="none", lw=0.9)
    axes.errorbar(x + 0.12, total, yerr=error_bars(rest), color="black", ls="none", lw=0.9)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(x, rung_names(memory["x"].astype(float)))
    axes.set(xlabel=TOKENS, ylabel=GAIN)


def front(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw STEM's gap along tokens per parameter with others', and its two parts on each other."""
    figure, grid = sheet("ab", 3.5, {"a": "What STEM gains on dense", "b": "Where STEM full's gain is from"})
    relative, parts = grid.values()
    draw_gaps(relative, data, scores)
    draw_stack(parts, data)
    roomy(parts)
    say(figure, data, scores)
    return figure


def say(figure: Figure, data: pd.DataFrame, scores: Scores) -> None:
    """Write above a figure that STEM stays ahead, where it does at the last rung."""
    last = pick(data, panel="gap, %").groupby("what").last()
    headline(figure, HEADLINE, bool((last["ci_low"] > 0).all()), scores.recipe.title)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw five panels along tokens per parameter: leads, and of STEM full parts, FLOPs, rivals and pairs."""
    titles = {
        "a": "Lead over dense, ours and others'",
        "b": "Leads of one model over another",
        "c": "At equal training FLOPs",
        "d": "Other memories",
        "e": "STEM full, by count of the pair",
    }
    figure, grid = sheet("aa;bc;de", 8.4, titles)
    draw_gaps(grid["a"], data, scores)
    say(figure, data, scores)
    above_law = f"{LESS}, loss above dense's\nfitted law (nats/token)"
    for axes, ends, label in (
        (grid["b"], draw_parts(grid["b"], data), f"lead (nats/token), {BETTER}"),
        (grid["c"], draw_arms(grid["c"], data, "over dense's law", AT_FLOPS), above_law),
        (grid["d"], draw_arms(grid["d"], data, "gap to dense", RIVALS), GAIN),
        (grid["e"], draw_pairs(grid["e"], data), GAIN),
    ):
        axes.axhline(0, color="black", lw=0.6)
        along(axes, data, label)
        axes.tick_params(axis="x", labelsize=SMALL)
        name_ends(axes, ends)
    return figure


def roomy(axes: Axes) -> None:
    """Give axes a legend above everything that is drawn."""
    low, high = axes.get_ylim()
    entries = len(axes.get_legend_handles_labels()[1])
    axes.set_ylim(low, high + (0.07 + 0.095 * entries) * (high - low))
    axes.legend(loc="upper left", handlelength=1.8, borderaxespad=0.1)
