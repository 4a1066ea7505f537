"""The blocks of the layers in which a memory adds something."""

from torch import Tensor

from stemrepro.model.block import Attention, Block, Context
from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.base import Memory


class MemoryAttention(Attention):
    """Attention whose values a memory changes."""

    memory: Memory

    def __init__(self, config: ModelConfig, layer: int, memory: Memory) -> None:
        super().__init__(config, layer)
        self.place = config.memory_layers.index(layer)
        object.__setattr__(self, "memory", memory)  # not registered: the decoder has it, once for all layers

    def values(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return the values of all heads: x [B, T, D], tokens [B, T] -> [B, T, K x E]."""
        return self.memory.values(self.place, super().values(x, tokens), x, tokens)


class MemoryBlock(Block):
    """A layer around which, and in whose values, a memory adds rows."""

    memory: Memory

    def __init__(self, config: ModelConfig, layer: int, memory: Memory) -> None:
        super().__init__(config, layer)
        self.place = config.memory_layers.index(layer)
        self.attention = MemoryAttention(config, layer, memory)
        object.__setattr__(self, "memory", memory)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Apply the layer: x [B, T, D] -> [B, T, D]."""
        x = self.memory.before(self.place, x, context.tokens)
        x = super().forward(x, context)
        return self.memory.after(self.place, x, context.embedded, context.tokens)
