"""What is STEM worth, and does it grow or shrink with tokens a parameter? Gaps beside both rival predictions, their parts and their price."""

from itertools import chain

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from stemrepro.claims import Unmeasured
from stemrepro.measures.worth import Worth
from stemrepro.paper import Paper
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, error_bars, plt

STEM = ("stem-third", "stem-full")
PARTS = {
    "token part": ("dense", "token-only"),
    "contextual part": ("token-only", "stem-full"),
    "table at equal FLOPs": ("up-removed", "stem-full"),
    "up-projection without a table": ("up-removed", "dense"),
}
LOOKS = {
    "token part": ("token-only", "-"),
    "contextual part": ("stem-full", "--"),
    "table at equal FLOPs": ("up-removed", "-"),
    "up-projection without a table": ("dense", "-"),
}
"""Arm whose colour and marker a part has, and its line."""
SHORT = {
    "contextual part": "contextual: token-only - full",
    "token part": "token: dense - token-only",
    "table at equal FLOPs": "table: no W_u - full",
    "up-projection without a table": "W_u: no W_u - dense",
}
LABEL = {"up-removed": "no W_u (control)"}
AT_FLOPS = ("dense", "up-removed", "token-only", *STEM)
BOUGHT = ("stem-third", "stem-full", "value-embeddings", "bigram-input")
PAIRS = {"0": "never", "1-3": "1-3", "4-31": "4-31", "32+": "32 or more"}
TOKENS = "training tokens a parameter (dense's)"


def collect(measure: Worth) -> pd.DataFrame:
    """Gaps, their parts, loss at equal FLOPs, what arms are worth in tokens, gaps by pair count, at each rung; and the rivals' numbers."""
    rows, places = rival_rows(measure.inputs.book.paper), measure.tokens_a_parameter()
    for width in measure.widths():
        at = "" if width == 1 else f", width x {width:g}"
        for (x, point), arm in ((own, arm) for own in measure.tokens_a_parameter(width).items() for arm in STEM):
            rows.append(mean_row(f"gap{at}", arm, x, measure.gap("dense", arm, point)))
            rows.append(mean_row(f"gap, %{at}", arm, x, measure.relative_gap("dense", arm, point)))
    for x, point in places.items():
        rows += [mean_row("part", what, x, measure.gap(*pair, point)) for what, pair in PARTS.items()]
        rows += [mean_row("over dense's law", arm, x, measure.over_law(arm, point)) for arm in AT_FLOPS]
        rows += [multiplier_row(measure, arm, x, point) for arm in BOUGHT]
        there = set(measure.all_losses("dense", point).losses.query("by == 'pair'")["bucket"]) & PAIRS.keys()
        for bucket in (bucket for bucket in PAIRS if bucket in there):
            gap = measure.gap("dense", "stem-full", point, f"prose:pair={bucket}")
            rows.append(mean_row("by pair", bucket, x, gap))
    for number, law in enumerate(measure.laws("dense")):
        about = {"floor": law.floor, "amplitude": law.amplitudes[0], "unit": law.units[0], "exponent": law.exponents[0]}
        rows += [{"panel": "dense's law", "what": what, "x": number, "value": value} for what, value in about.items()]
    return pd.DataFrame(rows)


def multiplier_row(measure: Worth, arm: str, x: float, point: str | None) -> dict:
    """log2 of the token multiplier at a rung; no value, and the reason, where it can't be said."""
    try:
        return mean_row(
            "multiplier", arm, x, measure.contrast("dense", arm, f"token-multiplier{f'@{point}' if point else ''}")
        )
    except Unmeasured as reason:
        return {"panel": "multiplier", "what": arm, "x": x, "value": np.nan, "note": str(reason)}


def rival_rows(paper: Paper) -> list[dict]:
    """The paper's Fig. 1a and the independent re-runs, each at its own tokens a parameter, in % of dense's loss, which has no unit to convert;
    of the paper also the last gap in nats a token of its own vocabulary."""
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
    """Means along tokens a parameter with 95% intervals over seeds."""
    axes.errorbar(
        rows["x"].astype(float), rows["value"], yerr=error_bars(rows), color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], ms=4.5,
        mfc="white" if hollow else ARM_COLOUR[arm], lw=1.1, ls=style, capsize=2, label=label,
    )  # fmt: skip


def along(axes: Axes, data: pd.DataFrame, ylabel: str) -> None:
    """A log axis of tokens a parameter with a tick a rung."""
    axes.set_xscale("log", base=2)
    ticks = sorted(data[data["panel"] == "gap"]["x"].astype(float).unique())
    axes.set_xticks(ticks, [f"{tick:.2g}" if tick < 10 else f"{tick:.0f}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=TOKENS, ylabel=ylabel)


def draw_gaps(axes: Axes, data: pd.DataFrame, band: str) -> None:
    """Gaps to dense at every width; hollow where the model is wider."""
    for name in sorted(name for name in data["panel"].unique() if name == band or name.startswith(f"{band}, width")):
        wide = name != band
        for arm in STEM:
            own = data[(data["panel"] == name) & (data["what"] == arm)]
            line(axes, own, arm, "_" if wide else ARM_LABEL[arm], ":" if wide else "-", wide)
    axes.axhline(0, color="black", lw=0.6)


def draw_rivals(axes: Axes, data: pd.DataFrame) -> None:
    """The paper's gap and the re-runs' in % of dense's loss, at their own tokens a parameter; single runs."""
    paper, others = (data[data["panel"] == f"gap, %, {name}"] for name in ("paper", "re-runs"))
    axes.plot(paper["x"].astype(float), paper["value"], color="black", ls=":", lw=1.2, label="paper: 1/3, 1B")
    axes.plot(others["x"].astype(float), others["value"], "*", color="#777777", ms=6, label="re-runs: 1/2")
    for row in others.itertuples():
        axes.annotate(row.what.upper(), (float(row.x), row.value), (4, -6), textcoords="offset points", fontsize=5.5, color="#555555")  # fmt: skip


def draw_multipliers(axes: Axes, data: pd.DataFrame) -> None:
    """How many times the tokens dense needs; an arrow at the top where its law never gets there, or only far beyond the ladder."""
    own = data[data["panel"] == "multiplier"]
    for arm in BOUGHT:
        line(axes, own[(own["what"] == arm) & own["value"].notna()], arm, ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    low, high = axes.get_ylim()
    for row in own[own["value"].isna()].itertuples():
        at = high + 0.07 * (high - low) * (1 + BOUGHT.index(row.what))
        axes.plot(float(row.x), at, ls="none", marker=r"$\uparrow$", color=ARM_COLOUR[row.what], ms=6)
    if own["value"].isna().any():
        axes.plot([], [], ls="none", marker=r"$\uparrow$", color="#777777", ms=6, label="beyond dense's law")
    every = np.arange(-8, 12) if high - low > 2.5 else np.log2([0.25, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8])  # fmt: skip
    ticks = [tick for tick in every if low <= tick <= high]
    axes.set_yticks(ticks, [f"{2**tick:.3g}" for tick in ticks])


def draw(data: pd.DataFrame, measure: Worth) -> Figure:
    """Six panels along tokens a parameter."""
    figure, grid = plt.subplots(3, 2, figsize=(7.4, 8.4), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.015, 1, 0.985))
    gaps, relative, parts, law, tokens, pairs = grid.flat
    draw_gaps(gaps, data, "gap")
    paper = data[data["panel"] == "gap, paper"]["value"].iloc[0]
    gaps.axhline(paper, color="black", lw=1.2, ls=":", label="paper: 1/3, 1B, constant\n(nats a token of its own)")
    draw_gaps(relative, data, "gap, %")
    draw_rivals(relative, data)
    for axes in (gaps, relative):
        for width in (width for width in measure.widths() if width != 1):
            axes.plot([], [], "D:", color="#777777", mfc="white", ms=4.5, lw=1.1, label=f"{width:g} times as wide")
    for what, (arm, style) in LOOKS.items():
        own = data[(data["panel"] == "part") & (data["what"] == what)]
        line(parts, own, arm, SHORT[what], style, style != "-")
    for arm in AT_FLOPS:
        own = data[(data["panel"] == "over dense's law") & (data["what"] == arm)]
        line(law, own, arm, LABEL.get(arm, ARM_LABEL[arm]), "none" if arm == "dense" else "-")
    draw_multipliers(tokens, data)
    shades = sns.light_palette(ARM_COLOUR["stem-full"], len(PAIRS) + 2)[2:]
    for (bucket, words), shade in zip(PAIRS.items(), shades, strict=True):
        own = data[(data["panel"] == "by pair") & (data["what"] == bucket)]
        pairs.errorbar(own["x"].astype(float), own["value"], yerr=error_bars(own), color=shade, marker=ARM_MARKER["stem-full"], ms=4.5, lw=1.1, capsize=2, label=words)  # fmt: skip
    for axes in (parts, law, pairs):
        axes.axhline(0, color="black", lw=0.6)
    titles = {
        gaps: ("a  STEM's gap to dense", "dense - arm (nats/token)"),
        relative: ("b  In % of dense's bits a byte", "1 - arm / dense (%)"),
        parts: ("c  What it is made of", "prose loss (nats/token)"),
        law: ("d  At equal training FLOPs", "loss - dense's fitted law\n(nats/token)"),
        tokens: ("e  Tokens that dense needs to catch up", "times the arm's tokens"),
        pairs: ("f  STEM full, by count of the token pair", "dense - STEM full (nats/token)"),
    }
    for axes, (title, ylabel) in titles.items():
        along(axes, data, ylabel)
        axes.set_title(title)
        roomy(axes)
    return figure


def roomy(axes: Axes) -> None:
    """A legend above everything that is drawn."""
    low, high = axes.get_ylim()
    entries = len(list(chain(*axes.get_legend_handles_labels()))) // 2
    axes.set_ylim(low, high + (0.07 + 0.095 * ((entries + 1) // 2)) * (high - low))
    axes.legend(fontsize=6, loc="upper left", ncols=2, columnspacing=0.9, handlelength=1.8, borderaxespad=0.1)
