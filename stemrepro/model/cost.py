"""Parameters, FLOPs and bytes of a model. Tests hold them equal to `numel()` and `FlopCounterMode`.

A multiply-add counts as 2 FLOPs. A table look-up counts none; the bytes it moves are counted (`table_bytes_per_token`).
Per layer and token, with width d, ffn width f, heads H of width e, key/value heads K and context T:

    attention projections  2 (d H e + 2 d K e + H e d)      attention itself  4 T H e   (all T x T, as counters do)
    FFN                    2 x the elements of its matrices that a token uses (stemrepro.model.counting)
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stemrepro.model.config import ModelConfig

if TYPE_CHECKING:
    from stemrepro.model.counting import Cost


def _counted(config: ModelConfig) -> "tuple[list[Cost], Cost, int]":
    """Return the cost of every layer's FFN and of the memory, and the parameters of a dense FFN of the same width."""
    from stemrepro.model.counting import ffn_cost, memory_cost  # with torch

    ffns = [ffn_cost(config.ffn_of(layer), config) for layer in range(config.layers)]
    return ffns, memory_cost(config), ffn_cost("dense", config).stored


def row_elements(config: ModelConfig) -> int:
    """Return the elements of the table rows that one token reads, in FFNs, attention, at the input and in a memory."""
    pair = config.width if config.pair_rows else 0
    ffns, memory, _ = _counted(config)
    return sum(ffn.read for ffn in ffns) + _value_rows(config) + pair + memory.read


def _value_rows(config: ModelConfig) -> int:
    return len(config.value_layers) * config.kv_heads * config.head_width


def half_of_the_model(config: ModelConfig) -> int:
    """Return the rows of a pair table that has at most as many elements as the rest of the model.

    The table is then at most half of the whole (LongCat, arXiv 2601.21204). The number of rows is the largest such
    m vocab + vocab / 2. It is as far as possible from multiples of the vocabulary, at which LongCat's hashes collide.
    """
    rest = replace(config, pair_rows=0)
    most = parameter_counts(rest)["total"] // config.width
    return (most - config.vocab // 2) // config.vocab * config.vocab + config.vocab // 2


def parameter_counts(config: ModelConfig) -> dict[str, int]:
    """Count real tensors, and give the paper's two other conventions with them.

    Returns:
        total: every element. active: what a token goes through, without tables and unused experts (what the paper calls
        active; with untied embeddings both counted). tables: elements of the tables. paper_total: dense model plus
        tables, what the arm removed not subtracted (FACTS: the convention of the paper's 1B row).
    """
    d, e = config.width, config.head_width
    attention = 2 * d * config.heads * e + 2 * d * config.kv_heads * e
    rest = 2 * config.vocab * d + config.layers * (attention + 2 * d) + d
    ffns, memory, dense = _counted(config)
    tables = sum(ffn.tables for ffn in ffns) + config.vocab * _value_rows(config)
    if config.table_shared:
        tables //= len(config.replaced_layers)
    tables += config.pair_rows * config.width + memory.tables
    removed = sum(max(0, dense - ffn.stored) for ffn in ffns)
    stored = sum(ffn.stored for ffn in ffns) + memory.stored + (1 if config.pair_rows else 0)  # and the pairs' scale
    total = rest + stored + tables
    active = total - tables - sum(ffn.idle for ffn in ffns)
    return {"total": total, "active": active, "tables": tables, "paper_total": total + removed}


def flops_per_token(config: ModelConfig, context: int) -> int:
    """Return the forward FLOPs per token in sequences of `context` tokens, attention and output head included.

    A training step costs three times as much (the backward pass needs two products for each forward one).
    """
    d, e = config.width, config.head_width
    projections = 2 * (2 * d * config.heads * e + 2 * d * config.kv_heads * e)
    attention = 4 * context * config.heads * e
    ffns, memory, _ = _counted(config)
    networks = 2 * sum(ffn.used for ffn in ffns) + 2 * memory.used
    return config.layers * (projections + attention) + networks + 2 * d * config.vocab


def nearest(
    of: Callable[[int], ModelConfig], size: Callable[[ModelConfig], int], aim: int, low: int = 1
) -> ModelConfig:
    """Return the model whose size comes nearest to `aim`.

    `of` gives the model at a whole number, as its d_ff, its experts or its heads. Its size, in parameters or FLOPs,
    grows with that number, which is `low` at least.
    """
    high = low + 1
    while size(of(high)) <= aim:
        low, high = high, 2 * high
    while high - low > 1:  # size(low) <= aim < size(high)
        under, over = size(of(low)), size(of(high))
        line = low + (aim - under) * (high - low) // (over - under)  # most sizes are linear: then `low` is there
        for middle in (line, line + 1, (low + high) // 2):
            if low < middle < high:
                low, high = (middle, high) if size(of(middle)) <= aim else (low, middle)
    return min(of(low), of(high), key=lambda config: abs(size(config) - aim))


def table_bytes_per_token(config: ModelConfig, bytes_per_number: int = 2) -> int:
    """Return the bytes of table rows that one token reads over all layers."""
    return row_elements(config) * bytes_per_number


def table_1_saving(shape: ModelConfig, length: int) -> float:
    """Return the share of a layer's multiply-adds that STEM saves by Table 1: d_ff / (4 d + 2 L + 3 d_ff).

    As printed: full multi-head attention, every query against every key, the layer replaced.
    `shape` needs width and ffn_width.
    """
    return shape.ffn_width / (4 * shape.width + 2 * length + 3 * shape.ffn_width)


def table_1_decode_saving(shape: ModelConfig, length: int, batch: int) -> float:
    """Return the share of a decode step's memory reads in a replaced layer that STEM saves.

    Table 1 has B (4 d^2 + 2 L d + 3 d d_ff) reads, as if every sequence read the weights anew, and so the same share as
    of compute. A step reads the weights once for its whole batch and the keys and values once per sequence:
    4 d^2 + B 2 L d + 3 d d_ff, of which d d_ff goes.
    """
    d, f = shape.width, shape.ffn_width
    return d * f / (4 * d * d + batch * 2 * length * d + 3 * d * f)


def expected_distinct(tokens: int, vocab: int) -> float:
    """Return the distinct tokens to expect among `tokens` independent draws, with chances of 1 / (rank + 2.7).

    Zipf's law in Mandelbrot's form. Text repeats its topic's words, so it has fewer, which the
    long_context_capacity recipe measures.
    """
    chance = 1 / (np.arange(1, vocab + 1) + 2.7)
    return float(-np.expm1(tokens * np.log1p(-chance / chance.sum())).sum())


def row_bytes(config: ModelConfig, rows: float, width: int = 2) -> float:
    """Return the bytes of so many tokens' rows in all tables, `width` bytes per number.

    Without de-duplication `rows` is batch x length, with it the distinct tokens among them.
    Training moves twice as much, because the rows' gradients go back.
    """
    return rows * table_bytes_per_token(config, width)


def cache_bytes(config: ModelConfig, length: int, batch: int, width: int = 2) -> int:
    """Return the bytes of the keys and values of `batch` sequences of `length` tokens."""
    return 2 * config.layers * batch * length * config.kv_heads * config.head_width * width


def decode_bytes(config: ModelConfig, length: int, batch: int, width: int = 2) -> int:
    """Return the bytes that a decode step reads on the device.

    They are the weights, once for the batch (of embedding and tables only the tokens' rows), and the keys and values of
    every sequence.
    """
    rows = batch * (config.width * width + table_bytes_per_token(config, width))
    weights = parameter_counts(config)["active"] - config.vocab * config.width
    return weights * width + rows + cache_bytes(config, length, batch, width)


def break_even_bandwidth(
    config: ModelConfig, length: int, rows: float, tokens: int, flops: float, training: bool = False, width: int = 2
) -> float:
    """Return the bytes per second from host to device at which rows arrive as fast as they are used up.

    Args:
        rows: table rows moved, de-duplicated or not.
        training: a training step (three times the compute, twice the bytes: gradients go back), not a prefill.
    """
    seconds = (3 if training else 1) * tokens * flops_per_token(config, length) / flops
    return (2 if training else 1) * row_bytes(config, rows, width) / seconds
