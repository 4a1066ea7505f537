import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn, matrix
from stemrepro.model.ffn.dense import SwiGLU


@ffn("ple", needs=("rank",))
class PerLayerEmbedding(SwiGLU):
    """Gemma 3n style: a narrow gated row next to the dense FFN, y = SwiGLU(x) + W_p (GELU(W_n x) * N[token]).

    N is [vocab, rank].
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.narrow = matrix(config.width, config.rank)
        self.table = nn.Embedding(config.vocab, config.rank)
        self.project = matrix(config.rank, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        side = self.project(F.gelu(self.narrow(x), approximate="tanh") * self.table(tokens))
        return super().forward(x, tokens) + side
