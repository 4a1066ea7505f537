from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.dense import SwiGLU


@ffn("input-add")
class InputAdd(SwiGLU):
    """Control: a row added to the residual next to the dense FFN, y = SwiGLU(x) + U[token], U [vocab, width]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().forward(x, tokens) + self.table(tokens)
