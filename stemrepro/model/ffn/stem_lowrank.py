from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn, matrix
from stemrepro.model.ffn.stem import Stem


@ffn("stem-lowrank", needs=("rank",))
class StemLowRank(Stem):
    """STEM with a narrow table: y = W_d (SiLU(W_g x) * W_r N[token]), N [vocab, rank], W_r the same for all tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.rank)
        self.widen = matrix(config.rank, config.ffn_width)

    def rows(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.widen(self.table(tokens))
