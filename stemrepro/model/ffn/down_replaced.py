from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn


@ffn("down-replaced")
class DownReplaced(FFN):
    """Argued away by the paper, never run: a row [width] stands where the down-projection's output was, y = U[token].

    Nothing of gate and up could reach the output then, so they are gone too.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.table(tokens)
