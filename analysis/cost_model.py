"""What STEM saves and moves, in closed form: FLOPs by length, reads in decoding, memory, traffic of a training step."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.costs import RANKS, dense_and_stem, saving_of_layer, saving_of_model, traffic
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import parameter_counts, table_1_decode_saving, table_1_saving
from stemrepro.report.results import pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    BETTER,
    LESS,
    PLAIN,
    SMALL,
    doubling,
    headline,
    look,
    note,
    sheet,
)

MODEL = "llama-3.2-1b"
PLACEMENTS = ("full", "half", "third")
CONTEXTS = {512: ("#8c8c8c", "o"), 4096: ("#5a5a5a", "s"), 32768: ("black", "^")}
RECEIVING = {
    "dense": ("dense", "dense"),
    "distinct": ("stem-third", "STEM 1/3, tables split:\nrows of distinct tokens"),
    "moe": ("hash-moe", "top-1 mixture\nof 16 experts"),
    "every-token": ("stem-third", "STEM 1/3, tables split:\na row for every token"),
    "inside-fsdp": ("stem-third", "STEM 1/3, tables gathered\nas all weights are"),
}
"""Arm of its colour and name of what a rank receives."""
DRAWN_RANKS = 64
LENGTHS = 2 ** np.arange(9, 18)
BATCHES = 2 ** np.arange(0, 9)


def collect(scores: Scores) -> pd.DataFrame:
    """Return everything that is drawn of the 1B, a line per number."""
    rows, shape = [], scores.catalog.shapes[MODEL]

    def add(panel: str, what: str, x: float, value: float) -> None:
        rows.append({"panel": panel, "model": MODEL, "what": what, "x": x, "value": value})

    for length in LENGTHS:
        add("length", "a layer (Table 1)", length, 100 * table_1_saving(shape, int(length)))
        add("length", "a layer", length, 100 * saving_of_layer(shape, int(length)))
        for placement in PLACEMENTS:
            add("length", placement, length, 100 * saving_of_model(shape, placement, int(length)))
    for length in CONTEXTS:
        for batch in BATCHES:
            add("decode", f"{length:,} tokens", batch, 100 * table_1_decode_saving(shape, length, int(batch)))
    for placement in PLACEMENTS:
        dense, stem = dense_and_stem(shape, placement)
        counts = parameter_counts(stem)
        add("memory", f"{placement}: all but tables", 0, 2 * counts["active"] / 1e9)
        add("memory", f"{placement}: tables", 0, 2 * counts["tables"] / 1e9)
    add("memory", "dense", 0, 2 * parameter_counts(dense)["active"] / 1e9)
    for what in RECEIVING:
        for ranks in RANKS:
            add("traffic", what, ranks, traffic(shape, what, ranks) / 1e9)
    return pd.DataFrame(rows)


def draw_length(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of forward FLOPs saved against length, of a layer and of models."""
    for what, dashes in (("a layer (Table 1)", ":"), ("a layer", "-")):
        rows = pick(data, panel="length", what=what)
        axes.plot(rows["x"], rows["value"], color=PLAIN, ls=dashes, lw=1.2)
    middle = rows.iloc[len(rows) // 2]
    note(axes, "a single layer\n(dotted: by Table 1)", (middle["x"], middle["value"]), (6, 9), color=PLAIN)
    for placement in PLACEMENTS:
        rows, arm = pick(data, panel="length", what=placement), f"stem-{placement}"
        axes.plot(rows["x"], rows["value"], **look(arm))
        note(axes, ARM_LABEL[arm], (rows["x"].iloc[0], rows["value"].iloc[0]), (2, 8), color=ARM_COLOUR[arm])
    doubling(axes, "x")
    axes.set(xlabel="tokens of context", ylabel=f"forward FLOPs saved (%), {BETTER}", ylim=(0, 31))


def draw_decode(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of a layer's reads saved in a decode step, against the batch that reads the weights together."""
    for length, (shade, marker) in CONTEXTS.items():
        rows = pick(data, panel="decode", what=f"{length:,} tokens")
        axes.plot(rows["x"], rows["value"], color=shade, marker=marker)
        alone = rows["value"].iloc[0]
        axes.axhline(alone, color=shade, lw=0.9, ls=":")
        note(axes, f"context {length:,}", (rows["x"].iloc[-1], alone), (4, 5), color=shade, ha="right")
    doubling(axes, "x")
    axes.set(xlabel="sequences decoded together", ylabel=f"reads saved (% of a layer), {BETTER}", ylim=(0, 31))
    note(axes, "dotted: Table 1, at any batch", (0.99, 0.97), (0, 0), xycoords="axes fraction", ha="right", color=PLAIN)


def draw_memory(axes: Axes, data: pd.DataFrame) -> pd.Series:
    """Draw where the bytes lie in bfloat16, and return how many times those of all else the tables have."""
    gigabytes, over = pick(data, panel="memory").set_index("what")["value"], {}
    names = ["dense", *(f"stem-{placement}" for placement in reversed(PLACEMENTS))]
    for place, arm in enumerate(names):
        rest = gigabytes.get(f"{arm.removeprefix('stem-')}: all but tables", gigabytes["dense"])
        tables = gigabytes.get(f"{arm.removeprefix('stem-')}: tables", 0)
        axes.barh(place, rest, 0.6, color=ARM_COLOUR["dense"])
        axes.barh(place, tables, 0.6, left=rest, color=ARM_COLOUR[arm], hatch="//", ec="white", lw=0)
        words = f"{rest:.1f} and {tables:.1f} of tables" if tables else f"{rest:.1f}"
        note(axes, words, (rest + tables, place), (4, 0))
        over[arm] = tables / rest
    axes.set_yticks(range(len(names)), [ARM_LABEL[arm] for arm in names])
    axes.set(xlabel=f"{LESS}, GB in bfloat16", xlim=(0, 1.85 * axes.get_xlim()[1]))
    axes.invert_yaxis()
    return pd.Series(over)


def draw_traffic(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what a rank receives in a training step, by what is exchanged."""
    received = pick(data, panel="traffic", x=DRAWN_RANKS).set_index("what")["value"]
    for place, (what, (arm, _)) in enumerate(RECEIVING.items()):
        axes.barh(place, received[what], 0.6, color=ARM_COLOUR[arm])
        note(axes, f"{received[what]:.1f}", (received[what], place), (4, 0))
    axes.set_yticks(range(len(RECEIVING)), [words for _, words in RECEIVING.values()], fontsize=SMALL)
    axes.set(xlabel=f"{LESS}, GB that a rank gets ({DRAWN_RANKS} ranks)", xlim=(0, 1.15 * received.max()))
    axes.invert_yaxis()


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw what is saved in a pass and in decoding, where the bytes are, and what a training step moves."""
    titles = {
        "a": "Compute saved, 1B",
        "b": "Reads saved in decoding, one layer",
        "c": "Where the bytes are, 1B",
        "d": "What a training step moves, 1B",
    }
    figure, grid = sheet([[[["a", "b"]]], [[["c", "d"]]]], 5.6, titles, height_ratios=(1.25, 1))
    draw_length(grid["a"], data)
    draw_decode(grid["b"], data)
    over = draw_memory(grid["c"], data)
    draw_traffic(grid["d"], data)
    saved = data[data["panel"].isin(["length", "decode"])].groupby(["panel", "what"])["value"]
    message = (
        f"STEM saves less with a longer context or a larger batch;\nits tables take {over['stem-third']:.0f} "
        f"to {over['stem-full']:.0f} times the memory of all else in the 1B"
    )
    shown = saved.apply(lambda line: line.is_monotonic_decreasing).all() and over["stem-third"] > 1
    headline(figure, message, bool(shown), scores.recipe.title)
    return figure
