"""The table in the gate's place."""

import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, Places, ffn, matrix


@ffn("gate-replaced")
class GateReplaced(FFN):
    """Dropped by the paper (Table 3): the row stands in the gate's place, y = W_d (SiLU(U[token]) * W_u x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = matrix(config.width, config.ffn_width)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Apply the network: x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(F.silu(self.table(tokens)) * self.up(x))

    def up_vectors(self, x: Tensor, tokens: Tensor, places: Places) -> Tensor:
        """Return W_u x."""
        return self.up(x[places])
