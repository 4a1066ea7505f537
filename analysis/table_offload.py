"""Tables in host memory: rows that are left to bring, what they cost by the link, in decoding, in memory and in
training. Times are modelled.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.costs import dense_and_stem
from stemrepro.measures.offload import (
    BYTES,
    DEVICES,
    HOMES,
    PREFILL,
    PROMPT,
    Home,
    decoding,
    dense_seconds,
    device_bytes,
    distinct_share,
    fetched,
    from_host,
    model_seconds,
    on_device,
    slowdown,
    step_rows,
    step_slowdown,
    steps,
)
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import text_counts
from stemrepro.model.cost import break_even_bandwidth, parameter_counts, row_bytes
from stemrepro.report.results import pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    DASHES,
    LESS,
    PLAIN,
    SMALLEST,
    SOURCE_COLOUR,
    SOURCE_DASHES,
    doubling,
    entry,
    look,
    sheet,
)

MODELS = {"llama-3.2-1b": "1B", "mobilellm-350m": "350M"}
PLACEMENTS = ("third", "half", "full")
DASHES_BY = dict(zip(PLACEMENTS, DASHES, strict=False))
DEVICE = "h100-pcie-5"
NOMINAL = {"PCIe 4": DEVICES["h100-pcie-4"].link, "PCIe 5": DEVICES["h100-pcie-5"].link}
SPEEDS = np.geomspace(4e9, 4e11, 41)
BATCHES = 2 ** np.arange(0, 8)
BELOW = 0.78
"""Height of lines that would cross a legend if they were longer, as a share of the axis."""
PARTS = {"back": "gradients back", "update": "host's update", "late": "rows after it"}
"""Parts of a training step that nothing hides."""
SHADES = dict(zip(PARTS, (("#bdbdbd", ""), ("#525252", ""), ("#ffffff", "///")), strict=True))
SHORT = {
    "when asked for": "when asked",
    "ahead, distinct": "+ distinct",
    "ahead, distinct, cache of 1/32": "+ cache 1/32",
    "ahead, distinct, cache of 1/10": "+ cache 1/10",
}
DASHES_OF = {
    "when asked for": (0, (1, 1)),
    "ahead": (0, (4, 2)),
    "ahead, distinct": "-",
    "ahead, distinct, cache of 1/32": (0, (6, 1.5, 1, 1.5)),
    "ahead, distinct, cache of 1/10": (0, (2, 1)),
}
GREYS = dict(zip(DASHES_OF, ("#bdbdbd", "#8c8c8c", "#000000", "#525252", "#737373"), strict=True))
DOTS = dict(zip(HOMES, ("*", "s", "v", "o", "D", "P"), strict=True))


def collect(scores: Scores) -> pd.DataFrame:
    """Return everything that is drawn, a line per number."""
    rows, device, text = [], DEVICES[DEVICE], text_counts(scores)

    def add(panel: str, model: str, what: str, x: float, value: float) -> None:
        rows.append({"panel": panel, "model": model, "what": what, "x": x, "value": value})

    for source in text.sources():
        for length, share in zip(*distinct_share(text, source), strict=True):
            add("distinct", "", source, length, 100 * share)
    for model, placement in ((model, placement) for model in MODELS for placement in PLACEMENTS):
        shape = scores.catalog.shapes[model]
        _, stem = dense_and_stem(shape, placement)
        resident = model_seconds(shape, placement, PROMPT, device, Home(host=False), 0)
        for name, home in HOMES.items():
            brought = fetched(text, PREFILL, home) if home.host else 0.0
            add("bytes", model, f"{placement}: {name}", 0, row_bytes(stem, brought, BYTES) / 1e6)
            for speed in SPEEDS if home.host else ():
                slower = model_seconds(shape, placement, PROMPT, replace(device, link=speed), home, brought)
                add("link", model, f"{placement}: {name}", speed / 1e9, 100 * (slower / resident - 1))
            seconds = model_seconds(shape, placement, PROMPT, device, home, brought)
            taken = 100 * (seconds / dense_seconds(shape, PROMPT, device) - 1)
            add("memory", model, f"{placement}: {name}", device_bytes(shape, placement, home, brought) / 1e9, taken)
        distinct = fetched(text, PREFILL, HOMES["ahead, distinct"])
        bandwidth = break_even_bandwidth(stem, PREFILL.context, distinct, PREFILL.total, device.flops)
        add("break-even", model, placement, 0, bandwidth / 1e9)
        for batch in BATCHES:
            for name in ("when asked for", "ahead"):
                slower = slowdown(text, shape, placement, device, [decoding(int(batch))], HOMES[name])
                add("decode", model, f"{placement}: {name}", batch, slower)
        for tokens in steps(text):
            for name in ("when asked for", "ahead"):
                slower = step_slowdown(text, shape, placement, device, tokens, name == "ahead")
                add("training", model, f"{placement}: {name}", tokens, slower)
        tokens = steps(text)[-1]
        work = shape, placement, tokens, device, step_rows(text, tokens)
        for part in PARTS:
            share = 100 * getattr(from_host(*work), part) / on_device(*work)
            add("training parts", model, f"{placement}: {part}", tokens, share)
    for model in MODELS:
        dense, _ = dense_and_stem(scores.catalog.shapes[model], "third")
        add("memory", model, "dense", BYTES * parameter_counts(dense)["active"] / 1e9, 0)
    return pd.DataFrame(rows)


def draw_distinct(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the share of a pass's rows that is left to bring after de-duplication, by source of text."""
    shares = pick(data, panel="distinct")
    for source in [name for name in SOURCE_COLOUR if name in set(shares["what"])]:
        rows = pick(shares, what=source)
        axes.plot(rows["x"], rows["value"], color=SOURCE_COLOUR[source], ls=SOURCE_DASHES[source], label=source)
    axes.axvline(PREFILL.tokens, color=PLAIN, lw=0.8)
    axes.text(PREFILL.tokens * 1.1, 97, "a chunk", fontsize=SMALLEST, color=PLAIN, va="top")
    doubling(axes, "x")
    axes.set(xlabel="tokens of a sequence in a pass", ylabel="distinct (% of tokens)", ylim=(0, 100))
    axes.legend()


def draw_bytes(axes: Axes, data: pd.DataFrame) -> None:
    """Draw megabytes of rows that a prefill chunk brings, by home, for both models with a third of the layers."""
    megabytes, names = pick(data, panel="bytes").set_index(["model", "what"])["value"], list(DASHES_OF)
    for place, model in enumerate(MODELS):
        values = [megabytes[model, f"third: {name}"] for name in names]
        places = np.arange(len(names)) + 0.4 * place - 0.2
        bars = axes.barh(places, values, 0.38, color=("#525252", "#bdbdbd")[place], label=MODELS[model])
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=SMALLEST, padding=2)
    axes.set_yticks(range(len(names)), [name.replace(", cache", ",\ncache") for name in names], fontsize=SMALLEST)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(xlabel="MB of rows a prefill pass brings (STEM 1/3)")
    axes.legend(loc="lower right")


def draw_link(axes: Axes, data: pd.DataFrame, model: str, placement: str) -> None:
    """Draw the modelled slowdown of a prompt's prefill against the link's speed, by how rows come."""
    slowdowns = pick(data, panel="link", model=model)
    for name, dashes in DASHES_OF.items():
        rows = pick(slowdowns, what=f"{placement}: {name}")
        axes.plot(rows["x"], rows["value"], color=GREYS[name], ls=dashes, label=SHORT.get(name, name))
    for name, speed in NOMINAL.items():
        axes.axvline(speed / 1e9, ymax=BELOW, color=PLAIN, lw=0.7)
        axes.text(speed / 1e9, 0.02, f" {name}", fontsize=SMALLEST, color=PLAIN, transform=axes.get_xaxis_transform())
    even = pick(data, panel="break-even", model=model, what=placement)["value"].item()
    axes.axvline(even, ymax=BELOW, color=ARM_COLOUR[f"stem-{placement}"], lw=1.2, ls=(0, (3, 1)), label="break-even")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xlabel="link (GB/s)", ylabel=f"{LESS}, slower than\non the device (%)", ylim=(-0.4, 4e4))
    axes.legend(fontsize=SMALLEST, loc="upper right", ncol=2)


def draw_many(axes: Axes, data: pd.DataFrame, panel: str) -> None:
    """Draw the modelled slowdown of both models with tables in a third and in all layers.

    Rows come ahead, or when asked for.
    """
    slowdowns = pick(data, panel=panel)
    for model, place in ((model, place) for model in MODELS for place in ("third", "full")):
        for name in ("when asked for", "ahead"):
            rows = pick(slowdowns, model=model, what=f"{place}: {name}")
            looks = look(f"stem-{place}", hollow=model == "mobilellm-350m") | {"ls": DASHES_OF[name]}
            axes.plot(rows["x"], rows["value"], **looks, ms=4, lw=1)
    stems = [f"stem-{place}" for place in ("third", "full")]
    handles = [entry(ARM_LABEL[arm], **look(arm, joined=False)) for arm in stems]
    models = (("1B", "black"), ("350M", "white"))
    handles += [entry(label, color="black", marker="o", ls="", mfc=fill) for label, fill in models]
    handles += [entry(name, color="black", ls=DASHES_OF[name]) for name in ("when asked for", "ahead")]
    axes.legend(handles=handles, ncol=2)
    doubling(axes, "x")


def draw_decode(axes: Axes, data: pd.DataFrame) -> None:
    """Draw a decode step's slowdown against the sequences decoded together."""
    draw_many(axes, data, "decode")
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xlabel="sequences decoded together", ylabel=f"{LESS}, slower than\non the device (%)", ylim=(-0.1, 2000))


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw a training step's slowdown against its tokens.

    "Ahead" is a step ahead; "when asked for" is after the update of the step before.
    """
    draw_many(axes, data, "training")
    axes.set_yscale("log")
    axes.set_yticks([10, 30, 100, 300, 1000], ["10", "30", "100", "300", "1000"])
    axes.set_yticks([], minor=True)
    axes.set_ylim(6, 8 * pick(data, panel="training")["value"].max())
    axes.set(xlabel="tokens of a step on one device", ylabel=f"{LESS}, slower than\non the device (%)")


def draw_parts(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what a training step's delay is made of."""
    rows = pick(data, panel="training parts")
    shares, tokens = rows.set_index(["model", "what"])["value"], rows["x"].max()
    names = [(model, place) for model in MODELS for place in ("third", "full")]
    left = np.zeros(len(names))
    for part, label in PARTS.items():
        values = np.array([shares[model, f"{place}: {part}"] for model, place in names])
        fill, hatch = SHADES[part]
        axes.barh(range(len(names)), values, 0.6, left, color=fill, hatch=hatch, edgecolor="black", lw=0.6, label=label)
        left += values
    axes.set_yticks(range(len(names)), [f"{MODELS[model]}, {ARM_LABEL[f'stem-{place}']}" for model, place in names])
    axes.invert_yaxis()
    axes.set(xlabel=f"of a step of {tokens:,.0f} tokens (%)")
    axes.legend(loc="upper right")


def draw_memory(axes: Axes, data: pd.DataFrame) -> None:
    """Draw device memory against the time of a prompt's prefill, in every home of the 1B's placements.

    Dense is at zero.
    """
    positions = pick(data, panel="memory", model="llama-3.2-1b").set_index("what")
    for place in PLACEMENTS:
        for name, dot in DOTS.items():
            point = positions.loc[f"{place}: {name}"]
            axes.plot(point["x"], point["value"], dot, color=ARM_COLOUR[f"stem-{place}"], ms=5)
        line = positions.loc[[f"{place}: {name}" for name in list(DOTS)[2:]]]
        axes.plot(line["x"], line["value"], color=ARM_COLOUR[f"stem-{place}"], ls=DASHES_BY[place], lw=1)
    dense = positions.loc["dense"]
    axes.plot(dense["x"], dense["value"], "X", color=ARM_COLOUR["dense"], ms=7)
    axes.axhline(0, color=PLAIN, lw=0.7)
    handles = [entry(name, color="black", marker=dot, ls="") for name, dot in DOTS.items()]
    handles += [
        entry(ARM_LABEL[f"stem-{place}"], color=ARM_COLOUR[f"stem-{place}"], ls=DASHES_BY[place])
        for place in PLACEMENTS
    ]
    handles += [entry("dense", color=ARM_COLOUR["dense"], marker="X", ls="")]
    axes.legend(handles=handles, fontsize=SMALLEST)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xticks([2, 3, 5, 10, 20, 40], ["2", "3", "5", "10", "20", "40"])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="GB on the device (PCIe 5)", ylabel="prefill against dense (%)", ylim=(-30, 2000))


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw eight panels."""
    titles = {
        "a": "Rows left after de-duplication",
        "b": "What a prefill pass brings",
        "c": "Prefill, 1B, STEM 1/3 (modelled)",
        "d": "Prefill, 1B, STEM full (modelled)",
        "e": "Decoding over PCIe 5 (modelled)",
        "f": "Memory and time, 1B (modelled)",
        "g": "Training over PCIe 5 (modelled)",
        "h": "What delays it (modelled)",
    }
    figure, grid = sheet("ab;cd;ef;gh", 11.6, titles)
    draw_distinct(grid["a"], data)
    draw_bytes(grid["b"], data)
    draw_link(grid["c"], data, "llama-3.2-1b", "third")
    draw_link(grid["d"], data, "llama-3.2-1b", "full")
    draw_decode(grid["e"], data)
    draw_memory(grid["f"], data)
    draw_training(grid["g"], data)
    draw_parts(grid["h"], data)
    return figure
