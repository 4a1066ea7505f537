"""The cost of tables in host memory: metrics of recipes/table_offload.yaml.

Nothing here was timed. Rows come from counts in text, FLOPs and bytes from stemrepro.model.cost, times from a model of
the overlap and of a training step's parts. Rates are assumed; measured ones are named.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np

from stemrepro.common.sums import total
from stemrepro.config.scale import Shape
from stemrepro.measures.costs import PLACEMENTS, Placement, dense_and_stem
from stemrepro.measures.metric import ShapeName
from stemrepro.measures.scores import Scores
from stemrepro.measures.text import TextCounts, text_counts
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import cache_bytes, flops_per_token, parameter_counts, row_bytes
from stemrepro.offload.overlap import pass_seconds
from stemrepro.verdicts.effect import Untested

READS_TEXT = True
BYTES = 2
"""Bytes of a number on the device: bfloat16."""
CHUNK, SEQUENCES, PREFIX = 128, 4, 8065
"""The official offload engine's benchmark: tokens of each sequence in a prefill pass, sequences, and tokens of each."""
CONTEXT = 4096
"""Tokens before the one that is decoded."""
NUMBER = 4
"""Bytes of a table's element in training: float32."""
TOUCHED = 7 * NUMBER
"""Bytes that AdamW moves per element: weight, gradient and two moments are read, three of them written."""
STEP = 16384
"""Tokens of a training step on one device: four sequences of 4,096.

It is the most of which the rows of a step, and those of the step after it, are counted.
"""


@dataclass(frozen=True)
class Device:
    """Rates that a device, its link and its host sustain.

    Attributes:
        flops: per second, in bfloat16.
        memory: bytes per second that it reads of its own memory.
        link: bytes per second from host memory, or to it.
        gather: bytes per second that the host gathers into staging; infinite where a kernel reads the pinned rows over
            the link.
        latency: seconds until the device sees what was copied, while the link is free.
        busy: seconds that a copy keeps the link, whatever its size.
        update: elements of tables per second that the host moves by AdamW.
    """

    flops: float
    memory: float
    link: float
    gather: float
    latency: float
    busy: float
    update: float


HOST_GATHER = 14.6e9
"""Bytes per second, measured: rows of 2,560 bfloat16 by index_select, two cores (docs/performance.csv, "gather")."""
HOST_UPDATE = 2.65e8
"""Elements per second, measured: rows of 2,560 float32 that training.table_adamw moves (the same, "rows moved")."""
SERVER_UPDATE = 2e11 / 28
"""That of a server whose memory gives 200 GB/s, in one pass over an element's 28 bytes: assumed, not measured."""
DEVICES = {
    "h100-pcie-4": Device(4e14, 2.7e12, 25e9, np.inf, 1e-5, 0, SERVER_UPDATE),
    "h100-pcie-5": Device(4e14, 2.7e12, 50e9, np.inf, 1e-5, 0, SERVER_UPDATE),
    "h100-pcie-5-busy": Device(4e14, 2.7e12, 50e9, np.inf, 0, 1e-5, SERVER_UPDATE),
    "h100-pcie-5-staged": Device(4e14, 2.7e12, 50e9, HOST_GATHER, 1e-5, 0, HOST_UPDATE),
}
"""Devices by name; their rates are assumed, not measured.

They are 40% of an H100's 989 TFLOPs, 80% of its 3.35 TB/s, 80% of a link's nominal 32 and 64 GB/s, and 10 microseconds
for a copy. "busy": a copy keeps the link for that time. "staged": a host of two cores gathers and moves rows.
"""
DeviceName = Annotated[str, tuple(DEVICES)]


@dataclass(frozen=True)
class Home:
    """The place of tables, and the way their rows come.

    Attributes:
        host: in host memory, else on the device.
        ahead: by how many tables rows are brought before they are read; 0 for when they are requested.
        distinct: whether each row of a sequence's chunk comes once.
        share: of the rows that a cache on the device holds.
    """

    host: bool = True
    ahead: int = 2
    distinct: bool = True
    share: float = 0.0


HOMES = {
    "on the device": Home(host=False),
    "when asked for": Home(ahead=0, distinct=False),
    "ahead": Home(distinct=False),
    "ahead, distinct": Home(),
    "ahead, distinct, cache of 1/32": Home(share=1 / 32),
    "ahead, distinct, cache of 1/10": Home(share=1 / 10),
}


@dataclass(frozen=True)
class Pass:
    """Tokens that go through a model together.

    Attributes:
        context: tokens before a token and itself, in the mean.
    """

    sequences: int
    tokens: int
    context: int

    @property
    def total(self) -> int:
        return self.sequences * self.tokens


PREFILL = Pass(SEQUENCES, CHUNK, PREFIX // 2)
"""A chunk of the official benchmark's prefill, in the middle of the prefix."""
PROMPT = tuple(Pass(SEQUENCES, CHUNK, CHUNK * number + CHUNK // 2) for number in range(PREFIX // CHUNK))
"""All whole chunks of that prefill. Their ids are known from the start, so that rows come during the chunk before."""


def decoding(sequences: int) -> Pass:
    """Return a step of decoding."""
    return Pass(sequences, 1, CONTEXT)


def layer_seconds(dense: ModelConfig, replaced: bool, work: Pass, flops_per_second: float, memory: float) -> float:
    """Return the device seconds of one layer: of its products, or of reading its weights, keys and values if longer."""
    product = dense.width * dense.ffn_width * replaced
    flops = (flops_per_token(dense, work.context) - 2 * dense.width * dense.vocab) / dense.layers - 2 * product
    weights = (parameter_counts(dense)["active"] - (2 * dense.vocab + 1) * dense.width) / dense.layers - product
    held = cache_bytes(dense, work.context, work.sequences, BYTES) / dense.layers
    return max(work.total * flops / flops_per_second, (BYTES * weights + held) / memory)


@cache
def stretches(
    dense: ModelConfig, replaced: tuple[int, ...], works: tuple[Pass, ...], flops_per_second: float, memory: float
) -> list[float]:
    """Return device seconds before each table is read and after the last [passes x tables + 1].

    A layer's table is read after its attention, here at the layer's start: rows have no longer than this to come.
    Logits are those of the last tokens alone. Cached, as a figure's links differ in nothing that they depend on.
    """
    bounds, seconds = [0, *replaced, dense.layers], [0.0]
    for work in works:
        of_layer = {kind: layer_seconds(dense, kind, work, flops_per_second, memory) for kind in (False, True)}
        parts = [total(of_layer[layer in replaced] for layer in range(a, b)) for a, b in itertools.pairwise(bounds)]
        seconds[-1] += parts[0]
        seconds += parts[1:]
    head = dense.width * dense.vocab
    seconds[-1] += max(2 * works[-1].sequences * head / flops_per_second, BYTES * head / memory)
    return seconds


def model_seconds(
    shape: Shape, placement: str, works: Sequence[Pass], device: Device, home: Home, fetched: float
) -> float:
    """Return the seconds of passes of as many tokens, whose ids are known from the start, of a model with STEM.

    Each brings `fetched` rows of each table from the host.
    """
    dense, stem = dense_and_stem(shape, placement)
    compute = stretches(dense, stem.replaced_layers, tuple(works), device.flops, device.memory)
    row = stem.ffn_width * BYTES
    reads = works[0].total * row / device.memory
    compute = [seconds + reads for seconds in compute[:-1]] + compute[-1:]
    if not home.host:
        return total(compute)
    tables, gather, copy = len(compute) - 1, fetched * row / device.gather, device.busy + fetched * row / device.link
    return pass_seconds(compute, [gather] * tables, [copy] * tables, home.ahead, device.latency)


def device_bytes(shape: Shape, placement: str, home: Home, rows: float) -> float:
    """Return bytes on the device: parameters, and tables or, in their place, buffers of `rows` rows and cache slots."""
    _, stem = dense_and_stem(shape, placement)
    counts = parameter_counts(stem)
    if not home.host:
        return BYTES * (counts["active"] + counts["tables"])
    held = max(1, home.ahead) * rows * stem.ffn_width * BYTES
    return BYTES * counts["active"] + held + row_bytes(stem, home.share * stem.vocab, BYTES)


@dataclass(frozen=True)
class Rows:
    """Rows of each table that a step reads, and the share of the next step's that this one doesn't."""

    distinct: float
    new: float


@dataclass(frozen=True)
class Step:
    """Seconds of a training step's parts with tables in host memory, at the least; no run trains so.

    The device would compute a step while the rows that only the next one reads come. Then all gradients go back, the
    host moves the step's rows, and the rows that both steps read follow: clipping needs the norm of all gradients. It
    is a lower bound: a batch from everywhere has more distinct tokens than neighbours in one source's text.

    Attributes:
        early: of host and link for rows of the next step, at the same time as `compute`.
        late: of host and link for rows that had to wait for the update.
    """

    compute: float
    early: float
    back: float
    update: float
    late: float

    @property
    def seconds(self) -> float:
        return max(self.compute, self.early) + self.back + self.update + self.late


def computing(stem: ModelConfig, tokens: int, sequence: int, device: Device) -> float:
    """Return the seconds of a step's forward and backward pass, and of the backbone's update."""
    backbone = TOUCHED * parameter_counts(stem)["active"] / device.memory
    return 3 * tokens * flops_per_token(stem, sequence // 2) / device.flops + backbone


def on_device(shape: Shape, placement: str, tokens: int, device: Device, rows: Rows) -> float:
    """Return the seconds of a step over so many tokens whose tables the device holds and moves."""
    _, stem = dense_and_stem(shape, placement)
    moved = row_bytes(stem, rows.distinct, TOUCHED) / device.memory
    return computing(stem, tokens, shape.sequence, device) + moved


def from_host(shape: Shape, placement: str, tokens: int, device: Device, rows: Rows, ahead: bool = True) -> Step:
    """Return a step over so many tokens with tables in host memory.

    Args:
        ahead: whether new rows come a step ahead; else all rows wait for the update of the step before.
    """
    _, stem = dense_and_stem(shape, placement)
    size, new = row_bytes(stem, rows.distinct, NUMBER), rows.new if ahead else 0.0
    brought = size / device.link + size / device.gather
    return Step(
        computing(stem, tokens, shape.sequence, device),
        early=new * brought + device.latency * ahead,
        back=size / device.link + device.latency,
        update=size / NUMBER / device.update,
        late=(1 - new) * brought + device.latency,
    )


def distinct_share(text: TextCounts, source: str) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths, and the distinct share of as many first tokens of a window, mean over windows."""
    table = text.growth(source, text.vocab)
    lengths = table.columns.to_numpy()
    return lengths, table.mean().to_numpy() / lengths


def fetched(text: TextCounts, work: Pass, home: Home) -> float:
    """Return rows of each table that a pass brings, mean over sources: one per token, or each sequence's distinct.

    A cache's share is taken off. Rows that two sequences share are counted for both.
    """
    if not home.distinct:
        return work.total
    rows = []
    for source in text.sources():
        lengths, shares = distinct_share(text, source)
        share = float(np.interp(np.log(work.tokens), np.log([1, *lengths]), [1.0, *shares]))
        hits = text.hit_rate(source, "distinct in a chunk", "LFU", home.share).mean if home.share else 0.0
        rows.append(work.total * share * (1 - hits / 100))
    return float(np.mean(rows))


def slowdown(
    text: TextCounts, shape: Shape, placement: str, device: Device, works: Sequence[Pass], home: Home
) -> float:
    """Return the percentage that passes take longer than with tables on the device."""
    rows = fetched(text, works[0], home)
    with_host = model_seconds(shape, placement, works, device, home, rows)
    resident = model_seconds(shape, placement, works, device, Home(host=False), rows)
    return 100 * (with_host / resident - 1)


def steps(text: TextCounts) -> list[int]:
    """Return the tokens of the five longest steps whose rows, and those of the step after, are counted."""
    lengths = set.intersection(*(set(text.growth(source, text.vocab).columns) for source in text.sources()))
    return sorted(int(tokens) for tokens in lengths if 2 * tokens in lengths)[-5:]


def step_rows(text: TextCounts, tokens: int) -> Rows:
    """Return rows of each table that a training step reads, and the new share of the next's, means over sources.

    Raises:
        Untested: rows aren't counted that far.
    """
    if tokens not in steps(text):
        raise Untested(f"the scale's text isn't counted up to {2 * tokens:,} tokens, two steps' of {tokens:,}")
    grown = [text.growth(source, text.vocab).mean() for source in text.sources()]
    rows = [(distinct[tokens], distinct[2 * tokens] / distinct[tokens] - 1) for distinct in grown]
    return Rows(*map(float, np.mean(rows, axis=0)))


def step_slowdown(text: TextCounts, shape: Shape, placement: str, device: Device, tokens: int, ahead: bool) -> float:
    """Return the percentage that a training step takes longer than with tables on the device."""
    work = shape, placement, tokens, device, step_rows(text, tokens)
    return 100 * (from_host(*work, ahead).seconds / on_device(*work) - 1)


def share_grows(scores: Scores) -> int:
    """Sources of text of which longer passes bring no smaller share of their rows."""
    text = text_counts(scores)
    return sum(bool((np.diff(distinct_share(text, source)[1]) >= 0).any()) for source in text.sources())


def _slowdown(scores: Scores, shape: str, placement: str, device: str, works: Sequence[Pass], home: Home) -> float:
    return slowdown(text_counts(scores), scores.catalog.shapes[shape], placement, DEVICES[device], works, home)


def prefill(scores: Scores, shape: ShapeName, placement: Placement, device: DeviceName) -> float:
    """Percent that a prompt's prefill takes longer, distinct rows ahead, than with tables on the device (modelled)."""
    return _slowdown(scores, shape, placement, device, PROMPT, HOMES["ahead, distinct"])


def prefill_cold(scores: Scores, shape: ShapeName, placement: Placement, device: DeviceName) -> float:
    """Percent that a chunk's prefill takes longer, with ids as it begins, than with tables on the device (modelled)."""
    return _slowdown(scores, shape, placement, device, [PREFILL], HOMES["ahead, distinct"])


def prefill_asked(scores: Scores, shape: ShapeName, placement: Placement, device: DeviceName) -> float:
    """Percent that a prompt's prefill takes longer, rows when requested, than with tables on the device (modelled)."""
    return _slowdown(scores, shape, placement, device, PROMPT, Home(ahead=0))


def decode(scores: Scores, shape: ShapeName, placement: Placement, device: DeviceName, sequences: int) -> float:
    """Percent that a decode step of so many sequences takes longer than with tables on the device (modelled)."""
    return _slowdown(scores, shape, placement, device, [decoding(sequences)], HOMES["ahead"])


def training(scores: Scores, shape: ShapeName, placement: Placement, device: DeviceName) -> float:
    """Percent that a training step of STEP tokens takes longer than with tables on the device (modelled).

    Rows come a step ahead.
    """
    return step_slowdown(text_counts(scores), scores.catalog.shapes[shape], placement, DEVICES[device], STEP, True)


def training_asked(scores: Scores, shape: ShapeName, placement: Placement, device: DeviceName) -> float:
    """Percent that a training step takes longer where all rows come after the update of the one before (modelled)."""
    return step_slowdown(text_counts(scores), scores.catalog.shapes[shape], placement, DEVICES[device], STEP, False)


def more_memory(scores: Scores) -> int:
    """Shapes that take more device memory than dense with tables in host memory."""
    count = 0
    for shape in scores.catalog.shapes.values():
        dense = BYTES * parameter_counts(dense_and_stem(shape, "third")[0])["active"]
        count += any(device_bytes(shape, at, HOMES["ahead"], PREFILL.total) > dense for at in PLACEMENTS)
    return count
