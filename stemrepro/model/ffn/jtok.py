"""JTok, simplified."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU


class JTok(SwiGLU):
    """JTok (arXiv 2602.00800): a row scales the dense FFN's output channel by channel, y = SwiGLU(x) * (1 + s * U[token] / |U[token]|).

    U is [vocab, width], |.| the Euclidean norm. Simplified: s is one learnt number a channel and starts at 1, so that channels start
    1 +- 1/sqrt(width); a table in every layer but the first; no mixture of rows (JTok-M).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.width)
        self.scale = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """X [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return super().forward(x, tokens) * (1 + self.scale * F.normalize(self.table(tokens), dim=-1))
