"""JTok, simplified."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU


class JTok(SwiGLU):
    """JTok (arXiv 2602.00800): a row scales the dense FFN's output, y = SwiGLU(x) * (1 + s * U[token] / |U[token]|).

    The scale is per channel. U is [vocab, width], |.| the Euclidean norm. Simplified: s is one learnt number per
    channel. It starts at 1, so that channels start at 1 +- 1/sqrt(width). Every layer but the first has a table, and
    there is no mixture of rows (JTok-M).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.width)
        self.scale = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Apply the network: x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return super().forward(x, tokens) * (1 + self.scale * F.normalize(self.table(tokens), dim=-1))
