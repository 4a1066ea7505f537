"""What a longer context touches of STEM's tables and of a mixture's experts, and what it is worth to STEM's lead."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.context import half, mean_difference, part
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import TextCounts, experts_touched, text_counts
from stemrepro.model.config import layers_of
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    PLAIN,
    SMALL,
    doubling,
    draw_band,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect

PAPER_SHAPE = "mobilellm-350m"
LENGTH = 8192
"""Tokens of the context whose touched parameters are written down."""
TABLE = "a table of STEM"
MOES = {"1 of 16": (16, 1, "-"), "8 of 256": (256, 8, "--")}
"""Experts, those that a token uses, and dashes."""
LEADS = ("stem-third", "stem-full")


def collect(scores: Scores) -> pd.DataFrame:
    """Return counts in the text and growths of leads."""
    shape = scores.catalog.shapes[PAPER_SHAPE]
    return pd.DataFrame(count_rows(text_counts(scores), shape.layers, shape.ffn_width) + growth_rows(scores))


def count_rows(text: TextCounts, layers: int, ffn_width: int) -> list[dict]:
    """Return distinct tokens, and what they touch of tables and of experts; intervals are over windows and sources."""
    rows = []
    for source in text.sources():
        table = text.growth(source, text.vocab)
        rows += [mean_row(f"distinct, {text.vocab}", source, n, Effect(table[n].to_numpy())) for n in table.columns]
    for n, group in text.distinct[text.distinct["vocab"] == text.vocab].groupby("length"):
        share = Effect(group.groupby("source")["distinct"].mean().to_numpy() / text.vocab)
        rows.append(mean_row("share touched", TABLE, n, share))
        for placement in ("third", "half", "full"):
            scale = len(layers_of(placement, layers)) * ffn_width * text.vocab / 1e6
            rows.append(mean_row("active parameters", f"stem-{placement}", n, Effect(scale * share.differences)))
        for name, (experts, chosen, _) in MOES.items():
            rows.append(mean_row("share touched", name, n, Effect(np.array([experts_touched(n, experts, chosen)]))))
    return rows


def growth_rows(scores: Scores) -> list[dict]:
    """Return leads over dense after nothing, and how they grow on the same targets after more context."""
    rows = []
    for arm in LEADS:
        length, alone = half(scores, arm), [part(scores, name, "alone") for name in ("dense", arm)]
        rows.append(mean_row("lead, alone", arm, 0, mean_difference(*alone)))
        for condition in ("shuffled", "intact"):
            growth = mean_difference(*(part(scores, name, condition) for name in ("dense", arm)), *alone)
            rows.append(mean_row(f"growth, {condition}", arm, length, growth))
    return rows


def draw_active(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the table parameters that a context touches in the paper's 350M shape, by placement."""
    ends = {}
    for arm in ("stem-third", "stem-half", "stem-full"):
        parameters = pick(data, panel="active parameters", what=arm)
        x, last = parameters["x"].astype(float), parameters["value"].iloc[-1]
        axes.plot(x, parameters["value"], **look(arm), markevery=2)
        draw_band(axes, x, parameters, ARM_COLOUR[arm])
        ends[f"{ARM_LABEL[arm]}:\n{last:.0f}M"] = last, ARM_COLOUR[arm]
    doubling(axes, "x")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}M")
    for value in pick(data, panel="active parameters", what="stem-full", x=LENGTH)["value"]:
        share = pick(data, panel="share touched", what=TABLE, x=LENGTH)["value"].item()
        axes.plot(LENGTH, value, "o", color="black", mfc="none", ms=11)
        words = f"{LENGTH:,} tokens touch {value:.0f}M\nof STEM full's {value / share:,.0f}M"
        note(axes, words, (LENGTH, value), (-12, 14), ha="right", fontsize=9, weight="bold")
    words = "means over texts,\nwith 95% intervals"
    note(axes, words, (0.98, 0.05), (0, 0), xycoords="axes fraction", ha="right", color=PLAIN)
    axes.set(xlabel="tokens of context", ylabel="parameters of the tables that are touched")
    name_ends(axes, ends, 0.07)


def draw_touched(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of a layer's table rows, and of a mixture's experts, that a context touches."""
    shares = pick(data, panel="share touched")
    tables = pick(shares, what=TABLE)
    axes.plot(tables["x"], 100 * tables["value"], color=ARM_COLOUR["stem-full"], lw=1.6)
    draw_band(axes, tables["x"], tables, ARM_COLOUR["stem-full"], 0.01)
    right, last = tables["x"].iloc[-1], 100 * tables["value"].iloc[-1]
    note(axes, f"{TABLE}: {last:.0f}%", (right, last), (0, 14), ha="right", color=ARM_COLOUR["stem-full"])
    for name, (*_, dashes) in MOES.items():
        line = pick(shares, what=name)
        axes.plot(line["x"], 100 * line["value"], color=PLAIN, ls=dashes)
    words = f"a mixture's experts:\n{', '.join(MOES)} (dashed)"
    note(axes, words, (right, 82), (0, 0), ha="right", color=PLAIN)
    doubling(axes, "x")
    axes.set(xlabel="tokens of context", ylabel="touched (%)", ylim=(0, 105))


def draw_growth(axes: Axes, data: pd.DataFrame) -> None:
    """Draw how much a lead grows on the same targets when the first half of the block stands before them."""
    for place, arm in enumerate(LEADS):
        shift = 0.16 * place - 0.08
        growth = data[data["panel"].isin(["growth, shuffled", "growth, intact"]) & (data["what"] == arm)]
        draw_means(axes, np.arange(1, 3) + shift, growth, **look(arm, joined=False))
        lead = pick(data, panel="lead, alone", what=arm)["value"].item()
        axes.plot(shift, 0, **look(arm, joined=False))
        note(axes, f"{ARM_LABEL[arm]}: {lead:.2f}", (-0.35, 0), (0, 12 + 11 * place), color=ARM_COLOUR[arm])
    note(axes, "lead here", (-0.35, 0), (0, 34), color=PLAIN)
    length = int(growth["x"].iloc[0])
    places = ["nothing", f"{length} tokens,\nshuffled", f"{length} tokens\nin order"]
    axes.set_xticks(range(3), places, fontsize=SMALL)
    axes.locator_params(axis="y", nbins=4)
    axes.axhline(0, color="black", lw=0.6)
    axes.set(xlabel="what stands before the targets", xlim=(-0.4, 2.4))
    axes.set_ylabel(f"growth of the lead\n(nats/token), {BETTER}")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw touched parameters large, and next to them shares that are touched and growths of leads."""
    titles = {"a": "Parameters touched, 350M", "b": "Share touched", "c": "Growth of STEM's lead"}
    figure, grid = sheet("aaabb;aaacc", 5.6, titles)
    draw_active(grid["a"], data)
    draw_touched(grid["b"], data)
    draw_growth(grid["c"], data)
    touched = pick(data, panel="active parameters", what="stem-full")["value"]
    growth = pick(data, panel="growth, intact", what="stem-full").iloc[0]
    least = scores.recipe.claims["lead-grows-same-targets"].smallest_effect
    message = (
        "A longer context touches more of STEM's tables; on the same targets STEM full's lead\n"
        f"in loss grows by {growth['value']:.3f} nats after {float(growth['x']):.0f} tokens; {least:g} would count"
    )
    headline(figure, message, bool(touched.is_monotonic_increasing and growth["ci_low"] > 0), scores.recipe.title)
    return figure
