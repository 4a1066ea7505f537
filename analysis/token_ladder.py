"""What is STEM worth, and does it grow or shrink with tokens a parameter? Gaps next to both rival predictions, their
parts and their price.
"""

from collections.abc import Iterable
from itertools import chain, combinations, product

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from stemrepro.config.address import MAIN
from stemrepro.config.paper import Paper
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scaling import (
    SPANS,
    agreement,
    flop_multiplier,
    interaction,
    law_numbers,
    lead,
    loss,
    over_law,
    parameter_multiplier,
    parameters,
    predicted,
    time_multiplier,
    token_multiplier,
    tokens,
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
    draw_means,
    error_bars,
    look,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect, Unmeasured

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
    "token part": ("token-only", "-"),
    "contextual part": ("stem-full", "--"),
    "table at equal FLOPs": ("up-removed", "-"),
    "up-projection without a table": ("dense", "-"),
    "up-projection next to a table": ("stem-dagger-full", "-"),
}
"""Arm whose colour and marker a part has, and its line."""
SHORT = {
    "contextual part": "contextual: token-only - full",
    "token part": "token: dense - token-only",
    "table at equal FLOPs": "table: no W_u - full",
    "up-projection without a table": "W_u: no W_u - dense",
    "up-projection next to a table": "W_u: full - dagger",
}
LABEL = {"up-removed": "no W_u (control)"}
AT_FLOPS = ("dense", "up-removed", "token-only", *STEM)
BOUGHT = ("stem-third", "stem-full", "ngram-table", "value-embeddings", "bigram-input")
BUYS = {"token": token_multiplier, "flop": flop_multiplier, "time": time_multiplier, "parameter": parameter_multiplier}
"""What dense needs more of to reach an arm's loss."""
COMPARED = ("dense", "stem-third", "stem-full", "token-only", "up-removed", "stem-frozen")
"""Arms that every setting has whose decisions are compared with the last rung's."""
SETTINGS = {
    "rung-1": ("narrow, dense's best start", "dense", "o"),
    "rung-2": ("narrow, dense's best start", "dense", "o"),
    "rung-3": ("narrow, dense's best start", "dense", "o"),
    "rung-1-official-start": ("narrow, official start", "up-removed", "s"),
    "rung-2-official-start": ("narrow, official start", "up-removed", "s"),
    "wide-rung-1": ("wide, dense's best start", "stem-third", "D"),
    "wide-rung-1-official-start": ("wide, official start", "stem-full", "^"),
}
"""Variants at which fewer FLOPs are spent: label, arm whose colour is drawn, marker."""
LAWS = ("dense", "stem-third", "stem-full")
"""Arms that were trained at both widths and whose fitted laws are reported."""
FORETOLD = ("stem-third", "stem-full", "token-only", "up-removed")
PAIRS = {"0": "never", "1-3": "1-3", "4-31": "4-31", "32+": "32 or more"}
TOKENS = "training tokens a parameter (dense's)"


def collect(scores: Scores) -> pd.DataFrame:
    """Return all that is drawn, judged elsewhere or cited: a line per number.

    At each rung: gaps, their parts, loss at equal FLOPs, what arms are worth in tokens, gaps by pair count.
    And the rivals' numbers.
    """
    rows, places, arms = rival_rows(scores.catalog.paper), tokens_a_parameter(scores), scores.recipe.arms
    wider = [width for width in widths(scores) if width != 1]
    for width in widths(scores):
        at = "" if width == 1 else f", width x {width:g}"
        for (rung, x), arm in product(tokens_a_parameter(scores, width).items(), STEM):
            rows.append(mean_row(f"gap{at}", arm, x, gap(scores, "dense", arm, rung)))
            rows.append(mean_row(f"gap, %{at}", arm, x, lead(scores, "dense", arm, rung)))
    for rung, x in places.items():
        rows += [mean_row("part", what, x, gap(scores, *pair, rung)) for what, pair in PARTS.items()]
        rows += [mean_row("over dense's law", arm, x, over_law(scores, arm, rung)) for arm in AT_FLOPS]
        rows += [multiplier_row(scores, arm, x, rung, of) for arm in BOUGHT for of in BUYS]
        rows += [mean_row("gap to dense", arm, x, gap(scores, "dense", arm, rung)) for arm in arms if arm != "dense"]
        rows += pair_rows(scores, rung, x)
    rows += [
        mean_row("part", "interaction", x, interaction(scores, "up-removed", "dense", rung))
        for rung, x in places.items()
    ]
    for what, pair in (PARTS | {arm: ("dense", arm) for arm in STEM}).items():
        rows += [mean_row("slope", what, span, tokens(scores, *pair, span)) for span in SPANS]
    for width, arm in product(widths(scores), LAWS):
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
    rows += predicted_rows(scores, places) + agreement_rows(scores)
    rows += [
        mean_row("pair", f"{high} - {low}", x, gap(scores, high, low, rung))
        for (high, low), (rung, x) in product(combinations(arms, 2), places.items())
    ]
    for arm, (axes, wide) in product(LAWS, (("tokens", False), ("parameters, tokens", True))):
        rows += [
            {"panel": f"law of {axes}", "what": arm, "x": name}
            | {"value": number.value, "ci_low": number.low, "ci_high": number.high}
            for name, number in law_numbers(scores, arm, wide).items()
        ]
    return pd.DataFrame(rows)


def gap(scores: Scores, high: str, low: str, rung: str) -> Effect:
    """Return the difference of two arms' prose losses at a rung."""
    return loss(scores, high, low, "prose", at=rung)


def multiplier_row(scores: Scores, arm: str, x: float, rung: str, of: str) -> dict:
    """Return log2 of the multiplier of one of BUYS at a rung; where it is unmeasured NaN, and the reason."""
    try:
        return mean_row(f"{of} multiplier", arm, x, BUYS[of](scores, "dense", arm, rung))
    except Unmeasured as reason:
        return {"panel": f"{of} multiplier", "what": arm, "x": x, "value": np.nan, "note": str(reason)}


def pair_rows(scores: Scores, rung: str, x: float) -> list[dict]:
    """Return STEM full's gaps by training count of the pair, as far as a rung has pairs of that count."""
    lines = arm_losses(scores, "dense", rung).losses
    there = set(lines.loc[lines["by"] == "pair", "bucket"])
    return [
        mean_row("by pair", bucket, x, loss(scores, "dense", "stem-full", "prose", pair=bucket, at=rung))
        for bucket in PAIRS
        if bucket in there
    ]


def predicted_rows(scores: Scores, places: dict[str, float]) -> list[dict]:
    """Return gaps to dense at the rungs that have three or more below them, as those alone foretell them."""
    return [
        mean_row("predicted", arm, x, predicted(scores, ("dense", arm), rung))
        for rung, x in list(places.items())[3:]
        for arm in FORETOLD
    ]


def agreement_rows(scores: Scores) -> list[dict]:
    """Return how often cheaper settings call a comparison of two arms as the last rung does, by their cost.

    The cost is training FLOPs of dense over all seeds, in % of one run at the last rung.
    """

    def cost(variant: str) -> float:
        return float(arm_losses(scores, "dense", variant).curve["flops"].max())

    rows = []
    for variant in SETTINGS:
        pairs = [(gap(scores, *pair, MAIN), gap(scores, *pair, variant)) for pair in combinations(COMPARED, 2)]
        for seeds in range(2, arm_losses(scores, "dense", variant).summary["seeds"] + 1):
            calls = agreement(pairs, seeds)
            share = 100 * seeds * cost(variant) / cost(MAIN)
            for what, value in (("sign", calls.same_sign), ("right", calls.right), ("wrong", calls.wrong)):
                about = {"panel": f"agreement, {what}", "what": f"{variant}, {seeds} seeds", "x": share}
                rows.append(about | {"value": value, "count": calls.pairs})
    return rows


def rival_rows(paper: Paper) -> list[dict]:
    """Return the paper's Fig. 1a and the independent re-runs, each at its own tokens per parameter.

    Gaps are in % of dense's loss, which has no unit to convert. The paper's last gap is also in nats per token of its
    own vocabulary.
    """
    dense, stem, rows = paper.row("fig-1a/dense"), paper.row("fig-1a/stem-third"), []
    size = paper.value("table-3-1b/dense/total")
    for column, perplexity in dense.items():
        tokens = 1000 * float(column.removesuffix("T"))
        value = 100 * (1 - np.log(stem[column]) / np.log(perplexity))
        rows.append({"panel": "gap, %, paper", "what": "1b", "x": tokens / size, "value": value})
    last = list(dense)[-1]
    rows.append({"panel": "gap, paper", "what": "1b", "value": np.log(dense[last] / stem[last])})
    for column, bits in paper.row("others-loss/dense").items():
        x = paper.value(f"others-loss/tokens/{column}") / paper.value(f"others-loss/parameters/{column}")
        value = 100 * (1 - paper.value(f"others-loss/stem-half/{column}") / bits)
        rows.append({"panel": "gap, %, re-runs", "what": column, "x": x, "value": value})
    return rows


def line(axes: Axes, rows: pd.DataFrame, arm: str, label: str, style: str = "-", hollow: bool = False) -> None:
    """Draw means along tokens per parameter with 95% intervals over seeds."""
    looks = look(arm, hollow) | {"ls": style, "ms": 4.5, "lw": 1.1, "capsize": 2}
    draw_means(axes, rows["x"], rows, **looks, label=label)


def rung_names(places: Iterable[float]) -> list[str]:
    """Return what rungs are called at an axis."""
    return [f"{place:.2g}" if place < 10 else f"{place:.0f}" for place in places]


def along(axes: Axes, data: pd.DataFrame, ylabel: str) -> None:
    """Make the x axis a log axis of tokens per parameter with a tick per rung."""
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="gap")["x"].astype(float).unique())
    axes.set_xticks(ticks, rung_names(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=TOKENS, ylabel=ylabel)


def draw_gaps(axes: Axes, data: pd.DataFrame, band: str) -> None:
    """Draw gaps to dense at every width; hollow where the model is wider."""
    for name in sorted(name for name in data["panel"].unique() if name == band or name.startswith(f"{band}, width")):
        wide = name != band
        for arm in STEM:
            gaps = pick(data, panel=name, what=arm)
            line(axes, gaps, arm, "_" if wide else ARM_LABEL[arm], ":" if wide else "-", wide)
    axes.axhline(0, color="black", lw=0.6)


def name_widths(axes: Axes, scores: Scores) -> None:
    """Name the hollow marks in the legend."""
    for width in (width for width in widths(scores) if width != 1):
        axes.plot([], [], "D:", color=PLAIN, mfc="white", ms=4.5, lw=1.1, label=f"{width:g} times as wide")


def draw_rivals(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the paper's gap and the re-runs' in % of dense's loss, at their own tokens per parameter; single runs."""
    paper, others = (pick(data, panel=f"gap, %, {name}") for name in ("paper", "re-runs"))
    axes.plot(paper["x"].astype(float), paper["value"], color="black", ls=":", lw=1.2, label="paper: 1/3, 1B")
    axes.plot(others["x"].astype(float), others["value"], "*", color=PLAIN, ms=6, label="re-runs: 1/2")
    for row in others.itertuples():
        first = float(row.x) == others["x"].astype(float).min()
        side, at = ("right", (-5, 2)) if first else ("left", (5, 2))
        note(axes, row.what.upper(), (float(row.x), row.value), at, ha=side, va="baseline", color=PLAIN)


def draw_multipliers(axes: Axes, data: pd.DataFrame) -> None:
    """Draw how many times the tokens dense needs to reach an arm's loss.

    An arrow at the top means that dense's law never reaches it, or only far beyond the ladder.
    """
    multipliers = pick(data, panel="token multiplier")
    for arm in BOUGHT:
        line(axes, multipliers[(multipliers["what"] == arm) & multipliers["value"].notna()], arm, ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    low, high = axes.get_ylim()
    for row in multipliers[multipliers["value"].isna()].itertuples():
        at = high + 0.07 * (high - low) * (1 + BOUGHT.index(row.what))
        axes.plot(float(row.x), at, ls="none", marker=r"$\uparrow$", color=ARM_COLOUR[row.what], ms=6)
    if multipliers["value"].isna().any():
        axes.plot([], [], ls="none", marker=r"$\uparrow$", color=PLAIN, ms=6, label="beyond dense's law")
    near = np.log2([0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8])
    ticks = [tick for tick in (np.arange(-8.0, 12) if high - low > 2.5 else near) if low <= tick <= high]
    axes.set_yticks(ticks, [f"{2**tick:.3g}" for tick in ticks])


def draw_predicted(axes: Axes, data: pd.DataFrame) -> None:
    """Draw gaps that came out at a rung, over those that the rungs below predict."""
    forecasts, outcomes = (pick(data, panel=panel) for panel in ("predicted", "gap to dense"))
    both = forecasts.merge(outcomes, on=["what", "x"], suffixes=("", "_came"))
    for arm in FORETOLD:
        arm_rows = pick(both, what=arm).sort_values("x")
        last = arm_rows["x"].astype(float).to_numpy() == arm_rows["x"].astype(float).max()
        for row, solid in zip(arm_rows.itertuples(), last, strict=True):
            across = [[row.value - row.ci_low], [row.ci_high - row.value]]
            up = [[row.value_came - row.ci_low_came], [row.ci_high_came - row.value_came]]
            looks = look(arm, hollow=not solid, joined=False) | {"ms": 4.5, "lw": 0.9, "capsize": 2}
            label = LABEL.get(arm, ARM_LABEL[arm]) if solid else "_"
            axes.errorbar(row.value, row.value_came, xerr=across, yerr=up, **looks, label=label)
    span = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
    axes.plot(span, span, color="black", lw=0.6)
    axes.plot([], [], "o", color=PLAIN, mfc="white", ms=4.5, label="the rung before the last")


def draw_agreement(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of comparisons that a cheaper setting calls rightly, and wrongly (hollow), over its cost."""
    for called, style, hollow in (("right", "-", False), ("wrong", ":", True)):
        shares = pick(data, panel=f"agreement, {called}")
        for variant, (words, arm, marker) in SETTINGS.items():
            rows = shares[shares["what"].str.startswith(f"{variant}, ")]
            first = not hollow and words not in axes.get_legend_handles_labels()[1]
            looks = look(arm, hollow) | {"ls": style, "marker": marker, "ms": 4.5, "lw": 1.1}
            axes.plot(rows["x"].astype(float), 100 * rows["value"], **looks, label=words if first else "_")
    axes.plot([], [], "o:", color=PLAIN, mfc="white", ms=4.5, lw=1.1, label="called the other way")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="FLOPs of all seeds (% of one longest run)", ylabel="of the last rung's calls (%)")


def draw_parts(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what the gap of STEM full is made of."""
    for what, (arm, style) in LOOKS.items():
        part = pick(data, panel="part", what=what)
        line(axes, part, arm, SHORT[what], style, style != "-")
    axes.axhline(0, color="black", lw=0.6)


def draw_stack(axes: Axes, data: pd.DataFrame) -> None:
    """Stack both parts of STEM full's gap at each rung: what a row of the token gives to dense, and what is beyond it.

    An interval is that of the part whose top it is at.
    """
    memory, rest = (pick(data, panel="part", what=name) for name in ("memory part", "gated rest"))
    x, total = np.arange(len(memory)), memory["value"].to_numpy() + rest["value"].to_numpy()
    for rows, below, arm, hatch, label in (
        (memory, 0, "input-add", "//", "a row of the token, added to dense"),
        (rest, memory["value"], "stem-full", "", "what STEM full has beyond that"),
    ):
        looks = {"color": ARM_COLOUR[arm], "hatch": hatch, "ec": "white", "lw": 0.8}
        axes.bar(x, rows["value"], 0.6, bottom=below, **looks, label=label)
    draw_means(axes, x - 0.12, memory, color="black", ls="none", lw=0.9)
    axes.errorbar(x + 0.12, total, yerr=error_bars(rest), color="black", ls="none", lw=0.9)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xticks(x, rung_names(memory["x"].astype(float)))
    axes.set(xlabel=TOKENS, ylabel=GAIN)


def front(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw STEM's gap along tokens per parameter with both rival predictions, and its two parts on each other.

    The gap's size at the last rung is written next to it.
    """
    figure, grid = sheet("ab", 3.3, {"a": "What STEM gains on dense", "b": "Where STEM full's gain is from"})
    relative, parts = grid.values()
    draw_gaps(relative, data, "gap, %")
    draw_rivals(relative, data)
    name_widths(relative, scores)
    for arm in STEM:
        gaps = pick(data, panel="gap, %", what=arm)
        last = gaps.loc[gaps["x"].astype(float).idxmax()]
        words = f"{last['value']:.1f}%\n({last['ci_low']:.1f} to {last['ci_high']:.1f})"
        note(relative, words, (float(last["x"]), last["value"]), (6, 0), color=ARM_COLOUR[arm])
    draw_stack(parts, data)
    along(relative, data, f"loss below dense's (%), {BETTER}")
    roomy(relative)
    roomy(parts, columns=1)
    return figure


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw eight panels.

    Six are along tokens per parameter. One has what was predicted and what came, one what cheaper settings would have
    said.
    """
    titles = {
        "a": "STEM's gap to dense",
        "b": "In % of dense's bits a byte",
        "c": "What it is made of",
        "d": "At equal training FLOPs",
        "e": "Tokens that dense needs to catch up",
        "f": "STEM full, by count of the pair",
        "g": "Gaps predicted from the rungs below",
        "h": "Would fewer FLOPs tell the same?",
    }
    figure, grid = sheet("ab;cd;ef;gh", 11.0, titles)
    gaps, relative, parts, law, tokens, pairs, predicted, decisions = grid.values()
    draw_gaps(gaps, data, "gap")
    paper = pick(data, panel="gap, paper")["value"].iloc[0]
    gaps.axhline(paper, color="black", lw=1.2, ls=":", label="paper: 1/3, 1B, constant\n(nats a token of its own)")
    draw_gaps(relative, data, "gap, %")
    draw_rivals(relative, data)
    for axes in (gaps, relative):
        name_widths(axes, scores)
    draw_parts(parts, data)
    for arm in AT_FLOPS:
        excess = pick(data, panel="over dense's law", what=arm)
        line(law, excess, arm, LABEL.get(arm, ARM_LABEL[arm]), "none" if arm == "dense" else "-")
    draw_multipliers(tokens, data)
    shades = sns.light_palette(ARM_COLOUR["stem-full"], len(PAIRS) + 2)[2:]
    for (bucket, words), shade, marker in zip(PAIRS.items(), shades, "os^D", strict=True):
        by_pair = pick(data, panel="by pair", what=bucket)
        draw_means(pairs, by_pair["x"], by_pair, color=shade, marker=marker, label=words)
    for axes in (law, pairs):
        axes.axhline(0, color="black", lw=0.6)
    labels = {
        gaps: GAIN,
        relative: f"loss below dense's (%),\n{BETTER}",
        parts: "difference of losses (nats/token)",
        law: f"{LESS}, loss above dense's\nfitted law (nats/token)",
        tokens: "times the arm's tokens",
        pairs: GAIN,
    }
    for axes, label in labels.items():
        along(axes, data, label)
    draw_predicted(predicted, data)
    predicted.set(xlabel="predicted (nats/token)", ylabel="came out (nats/token)")
    draw_agreement(decisions, data)
    for axes in grid.values():
        roomy(axes)
    return figure


def roomy(axes: Axes, columns: int = 2) -> None:
    """Give axes a legend above everything that is drawn."""
    low, high = axes.get_ylim()
    entries = len(list(chain(*axes.get_legend_handles_labels()))) // 2
    axes.set_ylim(low, high + (0.07 + 0.095 * -(-entries // columns)) * (high - low))
    axes.legend(loc="upper left", ncols=columns, columnspacing=0.9, handlelength=1.8, borderaxespad=0.1)
