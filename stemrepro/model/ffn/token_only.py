from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, Places, ffn, matrix


@ffn("token-only")
class TokenOnly(FFN):
    """Control: y = W_d U[token], a memory of the last token and nothing else."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab, config.ffn_width)
        self.down = matrix(config.ffn_width, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.down(self.table(tokens))

    def up_vectors(self, x: Tensor, tokens: Tensor, places: Places) -> Tensor:
        return self.table(tokens[places])
