from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn, matrix
from stemrepro.model.ffn.stem import Stem


@ffn("stem-slots", needs=("slots",))
class StemSlots(Stem):
    """Control: y = W_d (SiLU(W_g x) * U[token, a]), a = argmax_i (R x)_i, R [slots, width] random and never trained.

    It shows what more rows give without a router that learns. The routing is the random one of MoME (arXiv 2609.15126),
    simplified: hard, one of `slots` rows, in STEM's place. Rows start with the standard deviation of STEM's.
    Row `token x slots + a` of the table is U[token, a].
    """

    row_address = "router"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.slots = config.slots
        self.table = nn.Embedding(config.vocab * config.slots, config.ffn_width)
        self.router = matrix(config.width, config.slots).requires_grad_(False)

    def rows(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.table(tokens * self.slots + self.router(x).argmax(dim=-1))
