"""`stemrepro cost`: the costs of a shape with and without STEM, as one table."""

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.catalog import Catalog
from stemrepro.measures.costs import dense_and_stem
from stemrepro.model import cost
from stemrepro.model.cost import cache_bytes, decode_bytes, flops_per_token, parameter_counts, row_bytes

UNITS = ("", "k", "M", "G", "T", "P", "E", "Z")


def short(value: float, unit: str = "") -> str:
    """Format a number with three digits and an SI prefix: 1234567 -> '1.23 M'."""
    power = 0
    while abs(value) >= 999.5 and power + 1 < len(UNITS):
        value, power = value / 1000, power + 1
    digits = 0 if power == 0 and value == int(value) else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {UNITS[power]}{unit}".strip()


def cost_table(
    catalog: Catalog,
    shape: str,
    placement: str,
    length: int | None,
    batch: int,
    width: int,
    distinct: int | None,
    tflops: float,
) -> Table:
    """Make the table of training, prefill and decode of one shape: dense, STEM, and the change.

    Args:
        shape: a name of recipes/shapes.yaml, or a scale, whose model is then taken.
        distinct: distinct tokens among batch x length; None for the estimate.
        tflops: TFLOP/s that the device sustains, for the break-even bandwidth.

    Raises:
        UserError: no such shape, or more distinct tokens than the batch or the vocabulary has.
    """
    shapes = {name: scale.model for name, scale in catalog.scales.items()} | catalog.shapes
    if shape not in shapes:
        raise unknown("shape", shape, shapes, "recipes/ (shapes.yaml, scales/)")
    dense, stem = dense_and_stem(shapes[shape], placement)
    length = length or shapes[shape].sequence
    tokens = batch * length
    if min(length, batch, width) < 1 or not 0 < tflops < math.inf:
        raise UserError(f"length {length}, batch {batch}, bytes {width} and tflops {tflops:g} must be finite and > 0")
    if distinct is not None and not 1 <= distinct <= min(tokens, dense.vocab):
        raise UserError(f"{distinct} distinct tokens: the number must be 1 to {min(tokens, dense.vocab):,}")
    rows = distinct or cost.expected_distinct(tokens, dense.vocab)
    counts = parameter_counts(dense), parameter_counts(stem)
    forward = flops_per_token(dense, length), flops_per_token(stem, length)
    reads = decode_bytes(dense, length, batch, width), decode_bytes(stem, length, batch, width)
    caches = cache_bytes(dense, length, batch, width), cache_bytes(stem, length, batch, width)
    prefill, training = (
        cost.break_even_bandwidth(stem, length, rows, tokens, tflops * 1e12, mode, width) for mode in (False, True)
    )
    layers = f"STEM in {len(stem.replaced_layers)} of {stem.layers} layers"
    title = f"{shape}, {layers}, {batch} x {length:,} tokens, {width} bytes per number"
    table = Table("", "dense", "STEM", "change", title=title)
    for column in table.columns[1:]:
        column.justify = "right"

    def line(label: str, before: float | None, after: float, unit: str) -> None:
        change = f"{100 * (after / before - 1):+.1f}%" if before else ""
        table.add_row(label, "-" if before is None else short(before, unit), short(after, unit), change)

    line("parameters: existing tensors", counts[0]["total"], counts[1]["total"], "")
    line("parameters: active (all but tables)", counts[0]["active"], counts[1]["active"], "")
    line("parameters: tables", None, counts[1]["tables"], "")
    line("parameters: the paper's total of 1B", counts[0]["paper_total"], counts[1]["paper_total"], "")
    line("bytes of all but tables", width * counts[0]["active"], width * counts[1]["active"], "B")
    line("bytes of tables", None, width * counts[1]["tables"], "B")
    line("bytes of keys and values", *caches, "B")
    table.add_section()
    for what, times in (("training step", 3 * tokens), ("prefill", tokens), ("decode step", batch)):
        line(what, times * forward[0], times * forward[1], "FLOP")
    line("decode step: bytes read on the device", *reads, "B")
    table.add_section()
    line("rows to the device, prefill", None, row_bytes(stem, tokens, width), "B")
    line(f"  de-duplicated ({rows:,.0f} distinct)", None, row_bytes(stem, rows, width), "B")
    line("rows and gradients, training step", None, 2 * row_bytes(stem, tokens, width), "B")
    line(f"  de-duplicated ({rows:,.0f} distinct)", None, 2 * row_bytes(stem, rows, width), "B")
    line("rows to the device, decode step", None, row_bytes(stem, batch, width), "B")
    line(f"link to hide prefill's, {tflops:g} TFLOP/s", None, prefill, "B/s")
    line(f"link to hide training's, {tflops:g} TFLOP/s", None, training, "B/s")
    return table


def show(catalog: Catalog, console: Console, estimated: bool, **settings: Any) -> None:
    """Print the table and what it assumes."""
    console.print(cost_table(catalog, **settings))
    console.print("A multiply-add is 2 FLOPs; attention counts every query against every key; embeddings are untied.")
    if estimated:
        console.print("Distinct tokens: estimated by a Zipf law of independent draws; text has fewer (--distinct).")
