import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.dense import SwiGLU


@ffn("blend")
class Blend(SwiGLU):
    """The authors' later code: a learnt mix, y = W_d (SiLU(W_g x) * (s(a) W_u x + (1 - s(a)) U[token])).

    s is the logistic function. a is one number per layer and starts at 0, half and half.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.mix = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        share = self.mix.sigmoid()
        return self.down(F.silu(self.gate(x)) * (share * self.up(x) + (1 - share) * self.table(tokens)))
