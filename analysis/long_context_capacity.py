"""What a longer context touches (distinct tokens, table rows, caches), and what it is worth to each arm."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.buckets import position_edges
from stemrepro.measures.context import context_gain, half, mean_difference, part
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import TextCounts, experts_touched, text_counts
from stemrepro.model.config import layers_of
from stemrepro.model.cost import expected_distinct
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    ARM_MARKER,
    BETTER,
    DASHES,
    SMALL,
    SMALLEST,
    SOURCE_COLOUR,
    SOURCE_DASHES,
    doubling,
    draw_band,
    draw_means,
    entry,
    look,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect

PAPER_SHAPE = "mobilellm-350m"
LENGTH = 8192
"""Tokens of the context whose touched parameters are written down."""
MOES = {"MoE, top-2 of 8": (8, 2), "MoE, top-1 of 16": (16, 1), "MoE, top-8 of 256": (256, 8)}
POLICIES = {"static-best": (0, (1, 1)), "LFU": "-", "LRU": (0, (4, 2))}
PAIRS = {
    ("dense", "stem-full"): ("dense - STEM full", "stem-full"),
    ("dense", "stem-third"): ("dense - STEM 1/3", "stem-third"),
    ("token-only", "stem-full"): ("token-only - STEM full (contextual part)", "token-only"),
}


def count_rows(text: TextCounts, layers: int, ffn_width: int) -> list[dict]:
    """Return distinct tokens, Heaps' law, active parameters and hit rates.

    Intervals are over windows and stretches of text.
    """
    rows = []
    for vocab in sorted(text.distinct["vocab"].unique()):
        for source in text.sources():
            table = text.growth(source, vocab)
            rows += [mean_row(f"distinct, {vocab}", source, n, Effect(table[n].to_numpy())) for n in table.columns]
            exponent, intercept = text.heaps(source, vocab)
            rows += [
                mean_row(f"Heaps b, {vocab}", source, 0, exponent),
                mean_row(f"Heaps ln K, {vocab}", source, 0, intercept),
            ]
    distinct = text.distinct[text.distinct["vocab"] == text.vocab]
    for n, group in distinct.groupby("length"):
        share = Effect(group.groupby("source")["distinct"].mean().to_numpy() / text.vocab)
        rows.append(mean_row("share touched", "STEM tables", n, share))
        for placement in ("third", "half", "full"):
            scale = len(layers_of(placement, layers)) * ffn_width * text.vocab / 1e6
            rows.append(mean_row("active parameters", placement, n, Effect(scale * share.differences)))
        rows += [
            mean_row("share touched", name, n, Effect(np.array([experts_touched(n, *moe)])))
            for name, moe in MOES.items()
        ]
        zipf = expected_distinct(int(n), text.vocab)
        rows.append(mean_row(f"distinct, {text.vocab}", "Zipf, independent draws", n, Effect(np.array([zipf]))))
    for which in text.cache["asked"].unique():
        for policy in POLICIES:
            for share in sorted(text.cache["share"].unique()):
                rates = [text.hit_rate(source, which, policy, share) for source in text.sources()]
                rows.append(
                    mean_row(f"cache, {which}", policy, 100 * share, Effect(np.array([rate.mean for rate in rates])))
                )
                rows += [
                    mean_row(f"cache, {which}, {source}", policy, 100 * share, rate)
                    for source, rate in zip(text.sources(), rates, strict=True)
                ]
    return rows


def loss_rows(scores: Scores) -> list[dict]:
    """Return differences of arms by position, and how they grow on the same targets after more context."""
    rows = []
    for pair, (label, _) in PAIRS.items():
        middle = half(scores, pair[0])
        for at in position_edges(2 * middle):
            difference = mean_difference(*(part(scores, arm, "position", at, max(1, 2 * at)) for arm in pair))
            rows.append(mean_row("by position", label, at, difference))
        alone = [part(scores, arm, "alone") for arm in pair]
        for condition in ("shuffled", "intact"):
            growth = mean_difference(*(part(scores, arm, condition) for arm in pair), *alone)
            rows.append(mean_row(f"growth, {condition}", label, middle, growth))
    for arm in scores.recipe.arms:
        rows.append(mean_row("worth of the first half", arm, half(scores, arm), context_gain(scores, arm)))
    return rows


def draw_distinct(axes: Axes, data: pd.DataFrame, vocab: int) -> None:
    """Draw distinct tokens against length by source, with Heaps' exponent in the legend."""
    for source in [name for name in SOURCE_COLOUR if name in set(data["what"])]:
        counts = pick(data, panel=f"distinct, {vocab}", what=source)
        fit = pick(data, panel=f"Heaps b, {vocab}", what=source).iloc[0]
        label = f"{source}: b = {fit['value']:.3f} ({fit['ci_low']:.3f} to {fit['ci_high']:.3f})"
        colour, dashes = SOURCE_COLOUR[source], SOURCE_DASHES[source]
        axes.plot(counts["x"], counts["value"], color=colour, ls=dashes, lw=1.3, label=label)
        draw_band(axes, counts["x"], counts, colour)
    zipf = pick(data, what="Zipf, independent draws")
    axes.plot(zipf["x"], zipf["value"], color="black", lw=0.7, label="Zipf, independent draws")
    doubling(axes, "x", "y")
    axes.set(xlabel="tokens of context", ylabel=f"distinct tokens (of {vocab:,})")
    axes.set_ylim(bottom=2)
    axes.legend(loc="lower right")


def draw_touched(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of a layer's table rows, and of an equally large MoE's experts, that a context touches."""
    shares = pick(data, panel="share touched")
    for name, colour in zip(
        ("STEM tables", *MOES), (ARM_COLOUR["stem-full"], "#252525", "#737373", "#b0b0b0"), strict=True
    ):
        line = pick(shares, what=name)
        axes.plot(line["x"], 100 * line["value"], color=colour, lw=1.6 if name == "STEM tables" else 1.1, label=name)
        if name == "STEM tables":
            draw_band(axes, line["x"], line, colour, 0.01)
    doubling(axes, "x")
    axes.set(xlabel="tokens of context", ylabel="touched (% of table or experts)", ylim=(0, 105))
    axes.legend(loc="center right")


def draw_active(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the table parameters that a context touches in the paper's 350M shape, by placement."""
    for placement, dashes in zip(("third", "half", "full"), DASHES, strict=False):
        parameters = pick(data, panel="active parameters", what=placement)
        colour, label = ARM_COLOUR[f"stem-{placement}"], ARM_LABEL[f"stem-{placement}"]
        axes.plot(parameters["x"], parameters["value"], color=colour, ls=dashes, lw=1.3, label=label)
        draw_band(axes, parameters["x"], parameters, colour)
    doubling(axes, "x")
    axes.set_yscale("log")
    touched = pick(data, panel="active parameters", what="full", x=LENGTH)["value"]
    for value in touched:
        axes.plot(LENGTH, value, "o", color=ARM_COLOUR["stem-full"], ms=5)
        words = f"STEM full: {LENGTH:,} tokens\ntouch {value:.0f}M parameters"
        note(axes, words, (LENGTH, value), (12, -45), ha="center", color=ARM_COLOUR["stem-full"])
    axes.set(xlabel="tokens of context", ylabel="parameters (M), 350M shape")
    axes.legend(title="lines: mean over sources,\nbands: from the least to the most")


def draw_cache(axes: Axes, data: pd.DataFrame) -> None:
    """Draw hit rates against cache size: over all tokens, and over what de-duplication leaves."""
    for which, colour in (("every token", ARM_COLOUR["stem-third"]), ("distinct in a chunk", ARM_COLOUR["token-only"])):
        for policy, dashes in POLICIES.items():
            rates = pick(data, panel=f"cache, {which}", what=policy)
            axes.plot(rates["x"], rates["value"], color=colour, ls=dashes, lw=1.2)
            if policy == "LFU":
                draw_band(axes, rates["x"], rates.assign(ci_high=rates["ci_high"].clip(upper=100)), colour, alpha=0.15)
    axes.axhline(80, color="black", lw=0.8)
    axes.text(0.8, 81, "paper: above 80%", fontsize=SMALLEST, ha="left", va="bottom")
    handles = [
        entry("every token", color=ARM_COLOUR["stem-third"]),
        entry("distinct tokens of a\n128-token chunk", color=ARM_COLOUR["token-only"]),
    ]
    handles += [entry(name, color="black", ls=dashes, lw=1) for name, dashes in POLICIES.items()]
    axes.legend(handles=handles, loc="lower right")
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="cache, every token")["x"].unique())
    axes.set_xticks([t for t in ticks if t != 10], [f"{t:.1f}" if t < 3 else f"{t:.0f}" for t in ticks if t != 10])
    axes.set(xlabel="cache (% of a table's rows)", ylabel="hit rate (%)", ylim=(0, 102))


def draw_position(axes: Axes, data: pd.DataFrame) -> None:
    """Draw paired differences by position in the block."""
    for shift, (label, arm) in zip((0.1, 0, -0.1), PAIRS.values(), strict=True):
        differences = pick(data, panel="by position", what=label)
        places = np.arange(len(differences)) + shift
        draw_means(axes, places, differences, color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], label=label)
    names = [str(int(x)) if x < 2 else f"{int(x)}-{2 * int(x) - 1}" for x in differences["x"]]
    axes.set_xticks(range(len(differences)), names, fontsize=SMALLEST)
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="position in the sequence", ylim=(-0.2, None))
    axes.set_ylabel(f"difference of losses\n(nats/token), {BETTER}")
    axes.legend(loc="lower right")


def draw_growth(axes: Axes, data: pd.DataFrame) -> None:
    """Draw how much a difference grows on the same targets when the first half of the block stands before them."""
    for shift, (label, arm) in zip((0.08, 0, -0.08), PAIRS.values(), strict=True):
        growth = data[data["panel"].isin(["growth, shuffled", "growth, intact"]) & (data["what"] == label)]
        draw_means(axes, np.arange(1, 3) + shift, growth, **look(arm, joined=False), label=label)
    length = int(growth["x"].iloc[0])
    axes.plot(0, 0, "o", color="black", ms=4)
    axes.set_xticks(
        range(3), ["nothing\n(reference)", f"{length} tokens,\nshuffled", f"{length} tokens\nin order"], fontsize=SMALL
    )
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="what stands before the scored half", xlim=(-0.4, 2.4))
    axes.set_ylabel(f"growth of the lead\n(nats/token), {BETTER}")
    axes.set_ylim(top=1.4 * axes.get_ylim()[1])
    axes.legend(loc="upper left")


def collect(scores: Scores) -> pd.DataFrame:
    """Return counts in the text and differences of losses."""
    shape = scores.catalog.shapes[PAPER_SHAPE]
    return pd.DataFrame(count_rows(text_counts(scores), shape.layers, shape.ffn_width) + loss_rows(scores))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw six panels."""
    titles = {
        "a": "Distinct tokens by source, Heaps' law",
        "b": "Share touched, equal total size",
        "c": "Test-time capacity scaling",
        "d": "Row caches",
        "e": "What position changes",
        "f": "The same targets, more context",
    }
    figure, grid = sheet("ab;cd;ef", 8.4, titles)
    distinct, touched, active, cache, position, context = grid.values()
    draw_distinct(distinct, data, text_counts(scores).vocab)
    draw_touched(touched, data)
    draw_active(active, data)
    draw_cache(cache, data)
    draw_position(position, data)
    draw_growth(context, data)
    return figure
