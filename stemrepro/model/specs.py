"""Every feed-forward network as the rest of the project sees it, without torch: its cost, its needs, how it is matched.

To add one, write a class in a new file, stemrepro/model/ffn/<name>.py, and an entry here.
Or name a class of your file in recipes/arms.yaml, `ffn: my/silu.py:SiluRows`; its cost is then counted from the module.
recipes/arms.yaml makes an arm of the network.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from stemrepro.common.errors import UserError, unknown
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.naming import OWN_FILE, module_of
from stemrepro.model.memory.ngrams import HEADS, KERNEL, ORDERS, primes_from


@dataclass(frozen=True)
class FFNCost:
    """Elements of one FFN.

    Attributes:
        stored: of all its matrices, tables apart.
        used: of the matrices that a token goes through, 2 FLOPs each.
        row: of a table row; the table has `vocab` x `slots` rows.
        slots: rows per token in the table.
        reads: rows that a token reads.
        idle: of the experts that a token doesn't go through.
    """

    stored: int
    used: int
    row: int
    idle: int = 0
    slots: int = 1
    reads: int = 1


@dataclass(frozen=True)
class FFNSpec:
    """One feed-forward network.

    Attributes:
        cost: closed form of its elements.
        needs: fields of the model that it needs: "rank", "experts", "slots".
        grows_by: the field by which an arm is matched in size to another, or "".
        fewest: experts that a token must use, or its router learns nothing.
    """

    cost: Callable[[ModelConfig], FFNCost]
    needs: tuple[Literal["rank", "experts", "slots"], ...] = ()
    grows_by: Literal["", "ffn_width", "experts"] = ""
    fewest: int = 1


@dataclass(frozen=True)
class MemoryCost:
    """Elements of a memory outside of the FFNs, over all layers.

    Attributes:
        stored: of all its parameters, tables apart.
        used: of the matrices that a token goes through, 2 FLOPs each.
        tables: of all its tables.
        row: of the rows that a token reads.
    """

    stored: int
    used: int
    tables: int
    row: int


@dataclass(frozen=True)
class MemorySpec:
    """One memory outside of the FFNs."""

    cost: Callable[[ModelConfig], MemoryCost]
    needs: tuple[Literal["rank", "slots", "memory_layers", "memory_rows"], ...] = ()


def _used(elements: int, row: int = 0, more: int = 0) -> FFNCost:
    """Return the cost of a network whose every matrix element is used by every token; `more` are in no product."""
    return FFNCost(elements + more, elements, row)


def _df(c: ModelConfig) -> int:
    return c.width * c.ffn_width


def _experts(c: ModelConfig, router: int) -> FFNCost:
    """Return the cost of experts of three matrices each, `top_k` of them used, and of a router of so many elements."""
    expert = 3 * _df(c)
    return FFNCost(c.experts * expert + router, c.top_k * expert + router, 0, (c.experts - c.top_k) * expert)


def _sparse(c: ModelConfig) -> FFNCost:
    """Return the cost of narrow experts, of which a token uses `top_k` and a shared one, and of their router."""
    expert, router = 3 * c.width * -(-c.ffn_width // (c.top_k + 1)), c.width * c.experts
    used = (c.top_k + 1) * expert + router
    return FFNCost((c.experts + 1) * expert + router, used, 0, (c.experts - c.top_k) * expert)


FFNS = {
    "dense": FFNSpec(lambda c: _used(3 * _df(c)), grows_by="ffn_width"),
    "stem": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width)),
    "stem-shuffled": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width)),
    "ngram-table": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width)),
    "token-only": FFNSpec(lambda c: _used(_df(c), c.ffn_width)),
    "up-removed": FFNSpec(lambda c: _used(2 * _df(c)), grows_by="ffn_width"),
    "token-ffn": FFNSpec(lambda c: _used(3 * _df(c))),
    "gate-replaced": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width)),
    "down-replaced": FFNSpec(lambda c: _used(0, c.width)),
    "stem-normed": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width, more=c.ffn_width)),
    "stem-slots": FFNSpec(
        lambda c: replace(_used(2 * _df(c) + c.width * c.slots, c.ffn_width), slots=c.slots), needs=("slots",)
    ),
    "jtok": FFNSpec(lambda c: _used(3 * _df(c), c.width, more=c.width)),
    "joint-token-mixture": FFNSpec(
        lambda c: replace(_used(3 * _df(c) + c.width * c.slots, c.width, more=c.width), slots=c.slots, reads=c.top_k),
        needs=("slots",),
    ),
    "stem-dagger": FFNSpec(lambda c: _used(3 * _df(c), c.ffn_width)),
    "blend": FFNSpec(lambda c: _used(3 * _df(c), c.ffn_width, more=1)),
    "stem-interpolated": FFNSpec(lambda c: _used(3 * _df(c), c.ffn_width)),
    "stem-lowrank": FFNSpec(lambda c: _used(2 * _df(c) + c.rank * c.ffn_width, c.rank), needs=("rank",)),
    "ple": FFNSpec(lambda c: _used(3 * _df(c) + 2 * c.width * c.rank, c.rank), needs=("rank",)),
    "input-add": FFNSpec(lambda c: _used(3 * _df(c), c.width)),
    "hash-moe": FFNSpec(lambda c: _experts(c, 0), needs=("experts",), grows_by="experts"),
    "topk-moe": FFNSpec(lambda c: _experts(c, c.width * c.experts), needs=("experts",), grows_by="experts"),
    "hash-layers": FFNSpec(lambda c: _experts(c, 0), needs=("experts",), grows_by="experts"),
    "sparse-experts": FFNSpec(_sparse, needs=("experts",), grows_by="experts", fewest=2),
}
"""By the name that recipes/arms.yaml uses; the class is the one in stemrepro/model/ffn/<name>.py."""


def _groups(c: ModelConfig) -> int:
    return c.kv_heads * c.head_width


def _engram(c: ModelConfig) -> MemoryCost:
    """Return the cost of Engram: two projections, three norms and a depthwise convolution in each layer."""
    layers, heads = len(c.memory_layers), len(ORDERS) * HEADS
    used = layers * (2 * c.width * heads * c.rank + KERNEL * c.width)
    rows = sum(primes_from(c.memory_rows, layers * heads))
    return MemoryCost(used + layers * 3 * c.width, used, rows * c.rank, layers * heads * c.rank)


def _mome(c: ModelConfig) -> MemoryCost:
    """Return the cost of MoME: a router with biases, and a gate with a bias, for each value head of each layer."""
    layers = len(c.memory_layers)
    used = layers * c.kv_heads * (c.slots + 1) * c.width
    tables = layers * c.vocab * c.slots * c.head_width
    return MemoryCost(used + layers * c.kv_heads * (c.slots + 1), used, tables, layers * c.top_k * _groups(c))


def _per_layer(c: ModelConfig) -> MemoryCost:
    """Return the cost of Gemma's per-layer embeddings: three narrow matrices, a row and a norm in each layer."""
    layers, matrices = len(c.memory_layers), 3 * len(c.memory_layers) * c.width * c.rank
    return MemoryCost(matrices + layers * c.width + c.rank, matrices, layers * c.vocab * c.rank, layers * c.rank)


def _over_encoding(c: ModelConfig) -> MemoryCost:
    """Return the cost of eight tables of hashed n-grams, each of other rows and an eighth of the width."""
    width = -(-c.width // 8)
    rows = sum(c.memory_rows + 2 * i + 1 for i in range(8))
    return MemoryCost(8 * width * c.width, 8 * width * c.width, rows * width, 8 * width)


MEMORIES = {
    "value-embeddings": MemorySpec(
        lambda c: MemoryCost(
            2 * len(c.memory_layers),
            0,
            len(c.memory_layers) // 2 * c.vocab * _groups(c),
            len(c.memory_layers) * _groups(c),
        ),
        needs=("memory_layers",),
    ),
    "engram": MemorySpec(_engram, needs=("memory_layers", "memory_rows", "rank")),
    "mome": MemorySpec(_mome, needs=("memory_layers", "slots")),
    "per-layer-embeddings": MemorySpec(_per_layer, needs=("rank", "memory_layers")),
    "over-encoding": MemorySpec(_over_encoding, needs=("memory_rows",)),
}
"""By the name that recipes/arms.yaml uses; the class is the one in stemrepro/model/memory/<name>.py."""


def memory_needs(name: str) -> tuple[str, ...]:
    """Return the fields of the model that a memory needs; none without one; UserError where the name is unknown."""
    if name and name not in MEMORIES:
        raise unknown("memory", name, MEMORIES, "stemrepro/model/specs.py")
    return MEMORIES[name].needs if name else ()


def memory_cost(config: ModelConfig) -> MemoryCost:
    """Return the cost of a model's memory outside of its FFNs; nothing where it has none."""
    return MEMORIES[config.memory].cost(config) if config.memory else MemoryCost(0, 0, 0, 0)


def spec(name: str) -> FFNSpec:
    """Return the network of a name, or of a class in your file, "my/silu.py:SiluRows".

    Raises:
        UserError: the name is unknown.
    """
    if OWN_FILE.fullmatch(name):
        module_of(name)
        return FFNSpec(lambda config: _counted(name, config))
    if name not in FFNS:
        raise unknown("ffn", name, FFNS, "stemrepro/model/specs.py")
    return FFNS[name]


def check(config: ModelConfig) -> None:
    """Raise UserError where a model lacks what its FFN or its memory needs."""
    for field in memory_needs(config.memory):
        if not getattr(config, field):
            raise UserError(f"memory '{config.memory}' needs {field}, which is {getattr(config, field)}")
    needs, fewest = spec(config.ffn).needs, spec(config.ffn).fewest
    if "experts" in needs and not fewest <= config.top_k <= config.experts:
        range_ = f"{fewest} to {config.experts}"
        raise UserError(f"experts {config.experts}, top_k {config.top_k}: a token uses {range_} experts")
    if "slots" in needs and config.slots < 1:
        raise UserError(f"slots {config.slots}: '{config.ffn}' needs 1 or more rows per token")
    if "slots" in (*needs, *memory_needs(config.memory)) and config.top_k > config.slots:
        raise UserError(f"slots {config.slots}, top_k {config.top_k}: a token has fewer rows than it uses")
    if "rank" in needs and config.rank < 1:
        raise UserError(f"rank {config.rank}: '{config.ffn}' needs the width of its narrow table")


@cache
def _counted(name: str, config: ModelConfig) -> FFNCost:
    """Count the elements of a class without a closed form, on the meta device and in a forward pass of one token."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from stemrepro.model.ffn.base import ffn_class, is_table

    try:
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            ffn = ffn_class(name)(config)
            out = ffn(torch.zeros(1, 1, config.width), torch.zeros(1, 1, dtype=torch.long))
            assert out.shape == (1, 1, config.width), f"it gives {tuple(out.shape)}, not (1, 1, {config.width})"
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(
            f"ffn '{name}' can't be counted, a forward pass of one token on the meta device fails ({reason})"
        ) from error
    sizes = {f"ffn.{key}": parameter for key, parameter in ffn.named_parameters()}
    tables = [parameter.shape for key, parameter in sizes.items() if is_table(key)]
    stored = sum(parameter.numel() for key, parameter in sizes.items() if not is_table(key))
    slots = max((rows // config.vocab for rows, _ in tables), default=1)
    return FFNCost(stored, counter.get_total_flops() // 2, sum(width for _, width in tables), slots=slots)
