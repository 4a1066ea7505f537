"""What memories outside of the feed-forward networks share, and the way from a name to a class."""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Literal, TypeVar

from torch import Tensor, nn

from stemrepro.common.errors import unknown

Need = Literal["rank", "slots", "memory_layers", "memory_rows"]


class Memory(nn.Module):
    """One model's memory of tokens outside of its feed-forward networks.

    It is one module for all layers, since layers may share a table; `place` counts the layers of `memory_layers`. Each
    method is a place where a row can be added; the defaults add nothing. Its tables are `tables`, each an nn.Embedding.
    Shapes: B batch, T sequence, D width, G key/value heads x head_width.

    Attributes:
        needs: fields of ModelConfig that it needs (set by `memory`).
        rows_per_token: rows of each table that a token reads.
        in_no_product: parameters of several dimensions that nothing is multiplied by, as "memory.biases".
        starts: initial values of parameters that are not drawn, by name.
        looks_back: a token's rows depend on the tokens before it, so that keys and values alone can't be cached.
    """

    needs: ClassVar[tuple[Need, ...]] = ()
    rows_per_token = 1
    in_no_product: ClassVar[tuple[str, ...]] = ()
    starts: ClassVar[dict[str, float]] = {}
    looks_back = False

    def inputs(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Return what the first block reads: the tokens' embeddings [B, T, D], tokens [B, T] -> [B, T, D]."""
        return embedded

    def before(self, place: int, x: Tensor, tokens: Tensor) -> Tensor:
        """Return what a block reads: the residual stream x [B, T, D], tokens [B, T] -> [B, T, D]."""
        return x

    def values(self, place: int, values: Tensor, x: Tensor, tokens: Tensor) -> Tensor:
        """Return the attention's values: W_v x [B, T, G], x under its norm [B, T, D], tokens [B, T] -> [B, T, G]."""
        return values

    def after(self, place: int, x: Tensor, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Return what follows a block: x and the tokens' embeddings [B, T, D], tokens [B, T] -> [B, T, D]."""
        return x


Kind = TypeVar("Kind", bound=Memory)
_REGISTERED: dict[str, type[Memory]] = {}


def memory(name: str, needs: tuple[Need, ...]) -> Callable[[type[Kind]], type[Kind]]:
    """Register a class under the name that recipes/arms.yaml uses; its file has that name, with _ for -."""

    def register(kind: type[Kind]) -> type[Kind]:
        kind.needs = needs
        _REGISTERED[name] = kind
        return kind

    return register


@cache
def memories() -> dict[str, type[Memory]]:
    """Return all memories by name."""
    for module in pkgutil.iter_modules(sys.modules[__package__].__path__, f"{__package__}."):
        importlib.import_module(module.name)
    return dict(_REGISTERED)


@cache
def memory_class(name: str) -> type[Memory]:
    """Return the class of a memory; UserError where the name is unknown."""
    if name not in memories():
        raise unknown("memory", name, memories(), "stemrepro/model/memory")
    return memories()[name]
