import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.dense import SwiGLU


@ffn("stem-dagger")
class StemDagger(SwiGLU):
    """STEM-dagger (Table 3): the row is added to the up-projection, y = W_d (SiLU(W_g x) * (W_u x + U[token]))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.ffn_width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * (self.up(x) + self.table(tokens)))
