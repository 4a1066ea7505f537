"""Elements of a feed-forward network or a memory, counted from the shapes of its parameters on the meta device.

Buffers that a network computes lie on the processor all the same: on the meta device such an operation would first
import the compiler's, which takes a second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from stemrepro.common.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn_class, is_table
from stemrepro.model.memory.base import Memory, memory_class
from stemrepro.model.names import OWN_FILE

SHAPE = ("vocab", "width", "ffn_width", "rank", "experts", "top_k", "slots")
"""Fields that the shapes of a network's parameters follow from. Planning asks for models that differ in others."""


@dataclass(frozen=True)
class Cost:
    """Elements of one FFN, or of a memory over all layers.

    Attributes:
        stored: of all parameters, tables apart.
        used: of the matrices that a token goes through, 2 FLOPs each.
        idle: of the experts that a token doesn't go through.
        tables: of all tables.
        read: of the table rows that a token reads.
    """

    stored: int = 0
    used: int = 0
    idle: int = 0
    tables: int = 0
    read: int = 0


class _Undrawn(TorchFunctionMode):
    """No parameter is drawn: on the meta device that takes longer than all else."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def _count(module: FFN | Memory, prefix: str, top_k: int) -> Cost:
    stored = used = idle = tables = read = 0
    for name, parameter in module.named_parameters(prefix):
        if is_table(name):
            tables += parameter.numel()
            read += module.rows_per_token * parameter.shape[1]
            continue
        stored += parameter.numel()
        if name.startswith("ffn.experts."):  # [experts, outputs, inputs]
            expert = parameter.shape[1:].numel()
            used, idle = used + top_k * expert, idle + (len(parameter) - top_k) * expert
        elif parameter.dim() > 1 and name not in module.in_no_product:
            used += parameter.numel()
    return Cost(stored, used, idle, tables, read)


@cache
def ffn_cost(name: str, config: ModelConfig) -> Cost:
    """Return the cost of a network in a model.

    UserError: the name is unknown, the shape is too large, or a network of a user's file fails.
    """
    if OWN_FILE.fullmatch(name):
        return _own_cost(name, config)
    alike = {"layers": 1, "heads": 1, "kv_heads": 1} | {field: getattr(config, field) for field in SHAPE}
    return _ffn_cost(name, ModelConfig(**alike))


@cache
def _ffn_cost(name: str, shape: ModelConfig) -> Cost:
    return _count_on_meta(ffn_class(name), "ffn", shape)


def memory_cost(config: ModelConfig) -> Cost:
    """Return the cost of a model's memory outside of its FFNs; nothing where it has none."""
    if not config.memory:
        return Cost()
    return _memory_cost(replace(config, ffn_width=1))  # no memory hangs on it


@cache
def _memory_cost(config: ModelConfig) -> Cost:
    return _count_on_meta(memory_class(config.memory), "memory", config)


def _count_on_meta(kind: type[FFN] | type[Memory], prefix: str, config: ModelConfig) -> Cost:
    try:
        with torch.device("meta"), _Undrawn():
            return _count(kind(config), prefix, config.top_k)
    except RuntimeError as error:  # sizes are within bounds, but their products needn't be
        raise UserError(f"a {kind.__name__} of this shape is larger than torch can count; make it smaller") from error


def _own_cost(name: str, config: ModelConfig) -> Cost:
    """Count a user's network, and what it multiplies in a forward pass of one token, which nothing else tells."""
    try:
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            network = ffn_class(name)(config)
            out = network(torch.zeros(1, 1, config.width), torch.zeros(1, 1, dtype=torch.long))
            assert out.shape == (1, 1, config.width), f"it gives {tuple(out.shape)}, not (1, 1, {config.width})"
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(
            f"ffn '{name}' can't be counted, a forward pass of one token on the meta device fails ({reason})"
        ) from error
    counted = _count(network, "ffn", config.top_k)
    return Cost(counted.stored, counter.get_total_flops() // 2, 0, counted.tables, counted.read)
