"""Keys and values of the tokens so far, so that a new token costs a pass over itself alone."""

import torch
from torch import Tensor


class LayerCache:
    """One attention's keys and values, rotated: [batch, kv_heads, tokens so far, head_width] each."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of new tokens and return all of them."""
        if self.keys is not None and self.values is not None:
            keys, values = torch.cat([self.keys, keys], dim=2), torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


class Cache:
    """What a decoder keeps of past tokens: `tokens` [batch, tokens so far] and a LayerCache per layer."""

    def __init__(self, layers: int) -> None:
        self.tokens: Tensor | None = None
        self.layers = [LayerCache() for _ in range(layers)]

    def extend(self, tokens: Tensor) -> Tensor:
        """Add new tokens [batch, new] and return all of them."""
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], dim=1)
        return self.tokens
