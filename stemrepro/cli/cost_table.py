"""`stemrepro cost`: the costs of a shape with and without STEM, as one table."""

import math

from rich.table import Table

from stemrepro.common.errors import UserError, checked
from stemrepro.config.catalog import Catalog
from stemrepro.measures.costs import dense_and_stem
from stemrepro.model import cost

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
    """
    shapes = {name: scale.model for name, scale in catalog.scales.items()} | catalog.shapes
    chosen = shapes[checked("shape", shape, shapes, "recipes/ (shapes.yaml, scales/)")]
    dense, stem = dense_and_stem(chosen, placement)
    length = length or chosen.sequence
    tokens = batch * length
    if min(length, batch, width) < 1 or not 0 < tflops < math.inf:
        raise UserError(f"length {length}, batch {batch}, bytes {width} and tflops {tflops:g} must be finite and > 0")
    if distinct is not None and not 1 <= distinct <= min(tokens, dense.vocab):
        raise UserError(f"{distinct} distinct tokens: the number must be 1 to {min(tokens, dense.vocab):,}")
    rows = distinct or cost.expected_distinct(tokens, dense.vocab)
    counts = [cost.parameter_counts(model) for model in (dense, stem)]
    forward = [cost.flops_per_token(model, length) for model in (dense, stem)]
    reads = [cost.decode_bytes(model, length, batch, width) for model in (dense, stem)]
    caches = [cost.cache_bytes(model, length, batch, width) for model in (dense, stem)]
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
    line("bytes of keys and values", caches[0], caches[1], "B")
    table.add_section()
    for what, times in (("training step", 3 * tokens), ("prefill", tokens), ("decode step", batch)):
        line(what, times * forward[0], times * forward[1], "FLOP")
    line("decode step: bytes read on the device", reads[0], reads[1], "B")
    table.add_section()
    for what, times in (("rows to the device, prefill", 1), ("rows and gradients, training step", 2)):
        line(what, None, times * cost.row_bytes(stem, tokens, width), "B")
        line(f"  de-duplicated ({rows:,.0f} distinct)", None, times * cost.row_bytes(stem, rows, width), "B")
    line("rows to the device, decode step", None, cost.row_bytes(stem, batch, width), "B")
    for what, backward in (("prefill", False), ("training", True)):
        speed = cost.break_even_bandwidth(stem, length, rows, tokens, tflops * 1e12, backward, width)
        line(f"link to hide {what}'s, {tflops:g} TFLOP/s", None, speed, "B/s")
    return table
