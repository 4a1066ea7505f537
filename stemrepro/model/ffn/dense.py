import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn, matrix


@ffn("dense", grows_by="ffn_width")
class SwiGLU(FFN):
    """Dense FFN: y = W_d (SiLU(W_g x) * W_u x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = matrix(config.width, config.ffn_width)
        self.up = matrix(config.width, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))
