import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, Places, ffn, matrix


@ffn("stem")
class Stem(FFN):
    """STEM (paper, section 3): y = W_d(SiLU(W_g x) * U[token]).

    The up-projection is gone; row `token` of the layer's table U [vocab, ffn_width] stands in its place.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = matrix(config.width, config.ffn_width)
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def rows(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return what stands in the up-projection's place: as for `forward` -> [batch, seq, ffn_width]."""
        return self.table(tokens)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.rows(x, tokens))

    def up_vectors(self, x: Tensor, tokens: Tensor, places: Places) -> Tensor:
        return self.rows(x, tokens)[places]
