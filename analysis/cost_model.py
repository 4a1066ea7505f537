"""What STEM saves and moves, in closed form: over length, width, placement, batch, ranks; the link for a prefetch."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.scale import Shape
from stemrepro.measures.costs import RANKS, dense_and_stem, saving_of_layer, saving_of_model, traffic
from stemrepro.measures.scores import Scores
from stemrepro.model.cost import (
    break_even_bandwidth,
    expected_distinct,
    parameter_counts,
    row_bytes,
    table_1_decode_saving,
    table_1_saving,
)
from stemrepro.report.results import pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    ARM_MARKER,
    BETTER,
    PLAIN,
    SMALLEST,
    doubling,
    entry,
    look,
    plt,
    sheet,
)

PLACEMENTS = ("third", "half", "full")
MODELS = {"llama-3.2-1b": ("1B", "-"), "mobilellm-350m": ("350M", (0, (4, 2)))}
SUSTAINED = 4e14  # FLOPs per second: about 40% of an H100's bfloat16 peak
LINKS = {"PCIe 4.0 x16": 32, "PCIe 5.0 x16": 64}  # GB/s, nominal
RECEIVING = {  # arm of its colour, label, line
    "dense": ("dense", "dense", "-"),
    "inside-fsdp": ("stem-third", "STEM 1/3, tables in FSDP", (0, (1, 1.5))),
    "every-token": ("stem-third", "by width, every token", (0, (4, 2))),
    "distinct": ("stem-third", "by width, distinct tokens", "-"),
    "moe": ("hash-moe", "top-1 of 16 experts", "-"),
}
LENGTHS = 2 ** np.arange(9, 18)
WIDTHS = 2 ** np.arange(8, 14)
TOKENS = 2 ** np.arange(7, 21)
BATCHES = 2 ** np.arange(0, 9)


def family(width: int) -> Shape:
    """Return a shape of the paper's 1B proportions at another width."""
    heads = max(1, width // 64)
    attention = {"layers": 16, "heads": heads, "kv_heads": max(1, heads // 4), "sequence": 4096}
    return Shape(vocab=128256, width=width, ffn_width=4 * width, **attention)


def collect(scores: Scores) -> pd.DataFrame:
    """Return everything that is drawn, a line per number."""
    rows, shapes = [], scores.catalog.shapes

    def add(panel: str, model: str, what: str, x: float, value: float) -> None:
        rows.append({"panel": panel, "model": model, "what": what, "x": x, "value": value})

    for model in MODELS:
        for length in LENGTHS:
            add("length", model, "a layer (Table 1)", length, 100 * table_1_saving(shapes[model], int(length)))
            add("length", model, "a layer", length, 100 * saving_of_layer(shapes[model], int(length)))
            for placement in PLACEMENTS:
                add("length", model, placement, length, 100 * saving_of_model(shapes[model], placement, int(length)))
    for width in WIDTHS:
        for placement in PLACEMENTS:
            add("width", "family", placement, width, 100 * saving_of_model(family(int(width)), placement))
    for length in (512, 4096, 32768):
        for batch in BATCHES:
            value = table_1_decode_saving(shapes["llama-3.2-1b"], length, int(batch))
            add("decode", "llama-3.2-1b", f"{length:,} tokens", batch, 100 * value)
        printed = 100 * table_1_saving(shapes["llama-3.2-1b"], length)
        add("decode", "llama-3.2-1b", f"Table 1, {length:,} tokens", 1, printed)
    for model in MODELS:
        for placement in PLACEMENTS:
            dense, stem = dense_and_stem(shapes[model], placement)
            counts = parameter_counts(stem)
            add("memory", model, f"{placement}: all but tables", 0, 2 * counts["active"] / 1e9)
            add("memory", model, f"{placement}: tables", 0, 2 * counts["tables"] / 1e9)
            for tokens in TOKENS:
                distinct = expected_distinct(int(tokens), stem.vocab)
                add("bytes", model, placement, tokens, row_bytes(stem, int(tokens)) / 1e9)
                add("bytes, distinct", model, placement, tokens, row_bytes(stem, distinct) / 1e9)
                for name, count in (("link", tokens), ("link, distinct", distinct)):
                    value = break_even_bandwidth(stem, 4096, float(count), int(tokens), SUSTAINED)
                    add(name, model, placement, tokens, value / 1e9)
        add("memory", model, "dense", 0, 2 * parameter_counts(dense)["active"] / 1e9)
        for what in RECEIVING:
            for ranks in RANKS:
                add("traffic", model, what, ranks, traffic(shapes[model], what, ranks) / 1e9)
    return pd.DataFrame(rows)


def colour(placement: str) -> str:
    """Return the colour of the arm with that placement."""
    return ARM_COLOUR[f"stem-{placement}"]


def placed(placement: str) -> dict:
    """Return colour and marker of a line of the arm with that placement."""
    return {"color": colour(placement), "marker": ARM_MARKER[f"stem-{placement}"], "ms": 3.5, "lw": 1.3}


def draw_length(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of forward FLOPs saved against length, by placement, for both of the paper's models."""
    for (model, what), rows in pick(data, panel="length").groupby(["model", "what"], sort=False):
        dashes = MODELS[model][1]
        if what in PLACEMENTS:
            axes.plot(rows["x"], rows["value"], **placed(what), ls=dashes)
        else:
            axes.plot(rows["x"], rows["value"], color="#8c8c8c", ls=dashes, lw=0.9 if "Table" in what else 1.8)
    handles = [entry(ARM_LABEL[f"stem-{placement}"], **placed(placement)) for placement in PLACEMENTS]
    layers = (("one layer", 1.8), ("one layer, Table 1", 0.9))
    handles += [entry(label, color="#8c8c8c", lw=width) for label, width in layers]
    handles += [entry(label, color="black", ls=dashes, lw=1) for label, dashes in MODELS.values()]
    axes.legend(handles=handles, ncol=2, columnspacing=0.8, handlelength=1.8, loc="upper right")
    doubling(axes, "x")
    axes.set(xlabel="tokens a sequence", ylabel=f"forward FLOPs saved (%), {BETTER}", ylim=(0, 36))


def draw_width(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the same share against width at 4,096 tokens, in models of the 1B's proportions."""
    for placement, rows in pick(data, panel="width").groupby("what", sort=False):
        axes.plot(rows["x"], rows["value"], **placed(placement))
        x, y = rows["x"].iloc[-1], rows["value"].iloc[-1] + 0.6
        axes.text(x, y, ARM_LABEL[f"stem-{placement}"], fontsize=SMALLEST, color=colour(placement), ha="right")
    doubling(axes, "x")
    axes.set(xlabel="width (4,096 tokens, 16 layers, d_ff = 4 d)", ylim=(0, 36))
    axes.set_ylabel(f"forward FLOPs saved (%), {BETTER}")


def draw_decode(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of a layer's reads saved in a decode step, against the batch that reads the weights together."""
    savings = pick(data, panel="decode")
    shades = {"512 tokens": ("#9ecae1", "o"), "4,096 tokens": ("#3182bd", "s"), "32,768 tokens": ("#08306b", "^")}
    for what, (shade, marker) in shades.items():
        rows = pick(savings, what=what)
        axes.plot(rows["x"], rows["value"], color=shade, marker=marker, label=what)
        printed = pick(savings, what=f"Table 1, {what}")["value"].item()
        axes.axhline(printed, color=shade, lw=1, ls=(0, (2, 2)))
    axes.plot([], [], color="black", lw=1, ls=(0, (2, 2)), label="Table 1: at any batch")
    doubling(axes, "x")
    axes.set(xlabel="sequences decoded together", ylabel=f"reads saved (% of a layer), {BETTER}", ylim=(0, 32))
    axes.legend(loc="upper right", ncol=2, columnspacing=0.8)


def draw_memory(axes: Axes, data: pd.DataFrame) -> None:
    """Draw where the bytes lie in bfloat16: tables against all else."""
    gigabytes = pick(data, panel="memory").set_index(["model", "what"])["value"]
    place, ticks = 0, []
    for model, (label, _) in MODELS.items():
        axes.bar(place, gigabytes[model, "dense"], color=ARM_COLOUR["dense"])
        ticks.append(f"{label}\ndense")
        for placement in PLACEMENTS:
            place += 1
            rest = gigabytes[model, f"{placement}: all but tables"]
            axes.bar(place, rest, color=ARM_COLOUR["dense"])
            tables = gigabytes[model, f"{placement}: tables"]
            axes.bar(place, tables, bottom=rest, color=colour(placement), hatch="//", edgecolor="white", lw=0)
            ticks.append(f"{label}\n{ARM_LABEL[f'stem-{placement}'].removeprefix('STEM ')}")
        place += 1
    axes.set_xticks(range(len(ticks)), ticks, fontsize=SMALLEST)
    axes.set_ylabel("GB in bfloat16")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=ARM_COLOUR["dense"], label="all but tables"),
        plt.Rectangle((0, 0), 1, 1, fc="#bbbbbb", ec="white", hatch="//", label="tables"),
    ]
    axes.legend(handles=handles)


def draw_moved(axes: Axes, data: pd.DataFrame, panel: str, label: str) -> None:
    """Draw bytes or bandwidth against the tokens of a batch of the 1B.

    Dashed lines are without de-duplication, solid ones with it.
    """
    for placement in PLACEMENTS:
        for name, dashes in ((panel, (0, (2, 2))), (f"{panel}, distinct", "-")):
            rows = pick(data, panel=name, model="llama-3.2-1b", what=placement)
            arm = ARM_LABEL[f"stem-{placement}"] if dashes == "-" else None
            axes.plot(rows["x"], rows["value"], **placed(placement), ls=dashes, markevery=2, label=arm)
    axes.plot([], [], color="black", ls=(0, (2, 2)), lw=1, label="every token")
    axes.plot([], [], color="black", lw=1, label="distinct tokens (Zipf estimate)")
    doubling(axes, "x")
    axes.set_yscale("log")
    axes.set(xlabel="tokens in the batch (1B)", ylabel=label)


def draw_traffic(axes: Axes, data: pd.DataFrame, model: str) -> None:
    """Draw what a rank receives in a training step, by the number of ranks and by what is exchanged."""
    received = pick(data, panel="traffic", model=model)
    for what, (arm, label, dashes) in RECEIVING.items():
        rows = pick(received, what=what)
        axes.plot(rows["x"], rows["value"], **look(arm) | {"ls": dashes}, ms=3.5, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
    axes.minorticks_off()
    low, high = received["value"].min(), received["value"].max()
    ticks = [tick for tick in (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300) if 0.8 * low < tick < 1.3 * high]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.set(xlabel="ranks (a step of 2.1M tokens)", ylabel=f"GB that a rank receives ({MODELS[model][0]})")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw eight panels."""
    titles = {
        "a": "Compute saved, by length",
        "b": "Compute saved, by width",
        "c": "Reads saved in decoding (1B layer)",
        "d": "Where the bytes are",
        "e": "What a prefill moves",
        "f": "Link that hides a prefill's rows",
        "g": "Traffic of a training step, 1B",
        "h": "Traffic of a training step, 350M",
    }
    figure, grid = sheet("ab;cd;ef;gh", 11.2, titles)
    length, width, decode, memory, moved, link, *traffics = grid.values()
    draw_length(length, data)
    draw_width(width, data)
    draw_decode(decode, data)
    draw_memory(memory, data)
    draw_moved(moved, data, "bytes", "row bytes to the device (GB)")
    draw_moved(link, data, "link", "break-even bandwidth (GB/s)")
    for axes, model in zip(traffics, MODELS, strict=True):
        draw_traffic(axes, data, model)
        axes.legend(loc="upper right")
    moved.set_ylim(top=1e4)
    moved.legend(loc="upper left", ncol=2)
    link.legend(loc="lower left")
    for name, speed in LINKS.items():
        link.axhline(speed, color="#8c8c8c", lw=0.8)
        link.text(TOKENS[-1], speed * 0.96, f"{name}, nominal", fontsize=SMALLEST, ha="right", va="top", color=PLAIN)
    return figure
