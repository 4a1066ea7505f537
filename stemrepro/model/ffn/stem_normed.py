from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.stem import Stem


@ffn("stem-normed")
class StemNormed(Stem):
    """STEM whose rows are normalised: y = W_d (SiLU(W_g x) * RMSNorm(U[token])).

    The norm has a learnt gain [ffn_width] that starts at 1. Initial size and growth of rows then no longer matter.
    Norms on rows: Memory Attention (arXiv 2609.28399), there next to a projection; LongCat (arXiv 2601.21204)
    at the input.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.row_norm = nn.RMSNorm(config.ffn_width, config.norm_eps)

    def rows(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.row_norm(self.table(tokens))
