from typing import ClassVar

import torch
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.base import Memory, memory


@memory("value-embeddings", needs=("memory_layers",))
class ValueEmbeddings(Memory):
    """Value embeddings of modded-nanogpt (from December 2024): v = a W_v x + b U[token], U [vocab, G].

    a and b are two learnt numbers of each layer, 0.5 at initialisation. The first layers have tables of their own, and
    the last layers read the same ones in the same order: of 12 layers the first three and the last three.

    Chosen, because the speedrun has 12 layers alone: a quarter of the layers, rounded up, at either end.
    """

    starts: ClassVar[dict[str, float]] = {"factors": 0.5}
    in_no_product = ("memory.factors",)
    rows_per_token = 2

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.kv_heads * config.head_width
        self.tables = nn.ModuleList(nn.Embedding(config.vocab, width) for _ in range(len(config.memory_layers) // 2))
        self.factors = nn.Parameter(torch.empty(len(config.memory_layers), 2))

    def values(self, place: int, values: Tensor, x: Tensor, tokens: Tensor) -> Tensor:
        a, b = self.factors[place]
        return a * values + b * self.tables[place % len(self.tables)](tokens)
