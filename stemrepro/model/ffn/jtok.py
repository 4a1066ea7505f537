import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.dense import SwiGLU


@ffn("jtok")
class JTok(SwiGLU):
    """JTok (arXiv 2602.00800, equations 7 to 9): a row scales the dense FFN's output.

        y = SwiGLU(x) * (1 + s * U[token] / |U[token]|)

    U is [vocab, width], |.| the Euclidean norm. The scale s [width] is learnt, one number per channel. It starts at 1,
    so that channels start at 1 +- 1/sqrt(width). The equations are from two reading notes that agree; the paper's text
    was not found. It adds an epsilon to the norm, which has a least value here. It has a table in every layer; here
    every layer but the first has.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.width)
        self.scale = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().forward(x, tokens) * (1 + self.scale * F.normalize(self.table(tokens), dim=-1))
