import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn, matrix


@ffn("gate-replaced")
class GateReplaced(FFN):
    """Dropped by the paper (Table 3): the row stands in the gate's place, y = W_d (SiLU(U[token]) * W_u x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = matrix(config.width, config.ffn_width)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(F.silu(self.table(tokens)) * self.up(x))
