"""What a longer context touches in a published model (distinct tokens and their rows), and what it is worth to this
model and to the same one converted. SmolLM2-135M-Instruct, quantised to 4 bits; nothing was trained as STEM.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.model_capacity import COUNTS, MODELS, STUDY, by_document, losses, worth_of
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import table
from stemrepro.model.config import layers_of
from stemrepro.model.cost import expected_distinct
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import HUES, PLAIN, SMALLEST, doubling, draw_band, draw_means, sheet

SOURCES = {"speeches": "blue", "bible": "orange", "factbook": "green", "plays": "purple"}
ZIPF = "Zipf, independent draws"
TOUCHED = {
    "full": ("rows of STEM full", "orange", "-"),
    "third": ("rows of STEM 1/3", "green", "-"),
    "embedding": ("rows of the input embedding,\nin dense too", "grey", "-"),
    "matrices": ("up-projections that\nSTEM full replaces", "blue", "--"),
}
LEADS = {
    "third": ("STEM 1/3 - dense", "green", "o"),
    "full": ("STEM full - dense; STEM full is worse than a guess", "orange", "D"),
}


def count_rows(counts: pd.DataFrame) -> list[dict]:
    """Return distinct tokens by source, and the parameters touched in the documents that have all lengths."""
    rows, shape = [], counts.iloc[0]
    for (source, length), part in counts.groupby(["source", "length"]):
        for name, label in (("distinct", source), ("drawn", f"{source}, drawn")):
            rows.append(mean_row("distinct", label, length, by_document(part[name])))
    longest = counts["length"].max()
    whole = counts[counts["document"].isin(pick(counts, length=longest)["document"])]
    full = len(layers_of("full", shape["layers"]))
    each = {name: len(layers_of(name, shape["layers"])) * shape["ffn_width"] for name in ("full", "third")}
    each |= {"embedding": shape["width"]}
    for length, part in whole.groupby("length"):
        zipf = expected_distinct(length, shape["vocab"])
        rows.append({"panel": "distinct", "what": ZIPF, "x": length, "value": zipf})
        distinct = by_document(part["distinct"])
        rows += [mean_row("parameters", name, length, distinct, 1 / size) for name, size in each.items()]
        matrices = full * shape["ffn_width"] * shape["width"]
        rows.append({"panel": "parameters", "what": "matrices", "x": length, "value": matrices})
    return rows


def collect(scores: Scores) -> pd.DataFrame:
    """Return counts, losses by context, and what context is worth."""
    rows = count_rows(table(scores, STUDY, COUNTS))
    for model in MODELS:
        for context, loss in losses(scores, model).items():
            values = {"loss": loss, "worth": worth_of(scores, model, context)}
            if model in LEADS:
                values["growth"] = values["worth"] - worth_of(scores, "dense", context)
            rows += [mean_row(panel, model, context, by_document(value)) for panel, value in values.items()]
    return pd.DataFrame(rows)


def draw_distinct(axes: Axes, data: pd.DataFrame) -> None:
    """Draw distinct tokens by source against context: of documents, and of tokens drawn from the source."""
    for marker, (source, hue) in zip("os^D", SOURCES.items(), strict=True):
        for what, dashes, label in ((source, "-", source), (f"{source}, drawn", "--", None)):
            rows = pick(data, panel="distinct", what=what)
            style = {"color": HUES[hue], "ls": dashes, "lw": 1.2, "marker": marker, "ms": 4}
            axes.plot(rows["x"].astype(float), rows["value"], label=label, **style)
    axes.plot([], [], color=PLAIN, ls="--", lw=1.2, label="drawn from the source")
    zipf = pick(data, panel="distinct", what=ZIPF)
    axes.plot(zipf["x"].astype(float), zipf["value"], color="black", lw=0.7, label=ZIPF)
    doubling(axes, "x", "y")
    axes.set(xlabel="tokens of context", ylabel="distinct tokens")
    axes.legend(fontsize=SMALLEST)


def draw_parameters(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the parameters that a context touches, in tables and in dense's input embedding."""
    for marker, (name, (label, hue, dashes)) in zip("Dos^", TOUCHED.items(), strict=True):
        rows = pick(data, panel="parameters", what=name)
        x = rows["x"].astype(float)
        axes.plot(x, rows["value"] / 1e6, color=HUES[hue], ls=dashes, lw=1.4, marker=marker, ms=4, label=label)
        if name != "matrices":
            draw_band(axes, x, rows, HUES[hue], 1e6)
    doubling(axes, "x")
    axes.set_yscale("log")
    axes.set_ylim(top=50 * axes.get_ylim()[1])  # for the legend
    axes.set(xlabel="tokens of context", ylabel="parameters touched (M)")
    axes.legend(fontsize=SMALLEST)


def draw_worth(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what context is worth beyond dense's, and to dense, against its length."""
    dense = pick(data, panel="worth", what="dense")
    draw_means(axes, dense["x"], dense, color=HUES["grey"], marker="s", ms=4, lw=1, ls="--", label="dense")
    for model, (label, hue, marker) in LEADS.items():
        rows = pick(data, panel="growth", what=model)
        draw_means(axes, rows["x"], rows, color=HUES[hue], marker=marker, ms=5, lw=1, label=label)
    doubling(axes, "x")
    axes.axhline(0, color="black", lw=0.6)
    axes.set_yscale("symlog", linthresh=0.5)
    axes.set_xlabel("tokens of context before the same targets")
    axes.set_ylabel("what context takes off the loss\nafter the shortest (nats/token)")
    axes.legend(fontsize=SMALLEST)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw three panels."""
    titles = {"a": "Distinct tokens", "b": "Parameters touched", "c": "What more context is worth"}
    figure, grid = sheet("ab;cc", 6.0, titles)
    draw_distinct(grid["a"], data)
    draw_parameters(grid["b"], data)
    draw_worth(grid["c"], data)
    return figure
