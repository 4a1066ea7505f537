"""Value embeddings as in the speedrun that made them known."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.base import Memory


class ValueEmbeddings(Memory):
    """Value embeddings of modded-nanogpt (from December 2024): v = a W_v x + b U[token], U [vocab, G].

    a and b are two learnt numbers of each layer, 0.5 at initialisation. The first layers have tables of their own, and
    the last layers read the same ones in the same order: of 12 layers the first three and the last three.

    Chosen, because the speedrun has 12 layers alone: a quarter of the layers, rounded up, at either end.
    """

    starts: ClassVar[dict[str, float]] = {"factors": 0.5}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.first = len(config.memory_layers) // 2
        width = config.kv_heads * config.head_width
        self.tables = nn.ModuleList(nn.Embedding(config.vocab, width) for _ in range(self.first))
        self.factors = nn.Parameter(torch.empty(len(config.memory_layers), 2))

    def values(self, layer: int, values: Tensor, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a W_v x + b U[token] in the first and the last layers, elsewhere W_v x."""
        if layer not in self.layers:
            return values
        place = self.layers.index(layer)
        a, b = self.factors[place]
        return a * values + b * self.tables[place % self.first](tokens)
