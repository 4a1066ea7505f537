"""What memories outside of the feed-forward networks share, and the way from a name to a class."""

import importlib
from functools import cache
from typing import ClassVar

from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.naming import memory_module


class Memory(nn.Module):
    """One model's memory of tokens outside of its feed-forward networks.

    It is one module for all layers, since layers may share a table. Each method is a place where a row can be added;
    the defaults add nothing. Its tables are `table`, or `tables` in a list: each an nn.Embedding.
    Shapes: B batch, T sequence, D width, G key/value heads x head_width.

    Attributes:
        starts: initial values of parameters that are not drawn, by name.
        looks_back: a token's rows depend on the tokens before it, so that keys and values alone can't be cached.
    """

    starts: ClassVar[dict[str, float]] = {}
    looks_back = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = config.memory_layers

    def inputs(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Return what the first block reads: the tokens' embeddings [B, T, D], tokens [B, T] -> [B, T, D]."""
        return embedded

    def before(self, layer: int, x: Tensor, tokens: Tensor) -> Tensor:
        """Return what a block reads: the residual stream x [B, T, D], tokens [B, T] -> [B, T, D]."""
        return x

    def values(self, layer: int, values: Tensor, x: Tensor, tokens: Tensor) -> Tensor:
        """Return the attention's values: W_v x [B, T, G], x under its norm [B, T, D], tokens [B, T] -> [B, T, G]."""
        return values

    def after(self, layer: int, x: Tensor, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Return what follows a block: x and the tokens' embeddings [B, T, D], tokens [B, T] -> [B, T, D]."""
        return x


@cache
def memory_class(name: str) -> type[Memory]:
    """Return the class of a memory: the one that its module defines."""
    place = memory_module(name)
    values = vars(importlib.import_module(place)).values()
    [memory] = [
        value for value in values if isinstance(value, type) and value.__module__ == place and issubclass(value, Memory)
    ]
    return memory
