import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import Places, ffn
from stemrepro.model.ffn.dense import SwiGLU

HALF_LIFE = 40
"""Steps in which the dense share halves. Chosen: a tenth of the laptop's stage, so that it ends at a thousandth."""


@ffn("stem-interpolated")
class StemInterpolated(SwiGLU):
    """From dense to STEM: y = W_d (SiLU(W_g x) * (a W_u x + (1 - a) U[token])), with W_u frozen.

    The dense share a is 1 at the first step of a run and halves every HALF_LIFE steps. A model that is read to be
    scored has a = 0: it is STEM.
    """

    share: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.up.requires_grad_(False)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.register_buffer("share", torch.zeros(()), persistent=False)

    def start_step(self, stream: str) -> None:
        """Set the dense share of a step, the second number of the stream's name."""
        self.share.fill_(0.5 ** (int(stream.split(":")[1]) / HALF_LIFE))

    def mixed(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a W_u x + (1 - a) U[token]: x [batch, seq, width], tokens [batch, seq] -> [batch, seq, ffn_width]."""
        return self.share * self.up(x) + (1 - self.share) * self.table(tokens)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.mixed(x, tokens))

    def up_vectors(self, x: Tensor, tokens: Tensor, places: Places) -> Tensor:
        return self.mixed(x, tokens)[places]
