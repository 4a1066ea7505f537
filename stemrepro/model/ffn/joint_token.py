"""JTok, with its norm."""

import torch
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU

SMALL = 1e-6
"""What is added to a row's length."""


def direction(rows: Tensor) -> Tensor:
    """Return rows / (their Euclidean norm + SMALL): [..., width] -> [..., width]."""
    return rows / (torch.linalg.vector_norm(rows, dim=-1, keepdim=True) + SMALL)


class JointToken(SwiGLU):
    """JTok (arXiv 2602.00800, equations 7 to 9): a row scales the update of the stream, channel by channel.

        y = SwiGLU(x) * (1 + s * U[token] / (|U[token]| + epsilon))

    U is [vocab, width] and s [width], both learnt in each layer; |.| is the Euclidean norm. The equations are from two
    reading notes on the paper that agree; the paper's text and its code were not found. "jtok" has the same equation:
    it keeps the norm from 0 by a maximum in place of a sum, which differs by the share epsilon / |U[token]| alone.
    The paper has a table in every layer; here layer 0 can't have one.

    Chosen, because the notes don't say: epsilon is 1e-6, s is 1 and U is drawn as other tables are at initialisation.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.width)
        self.scale = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Apply the network: x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return super().forward(x, tokens) * (1 + self.scale * direction(self.table(tokens)))
