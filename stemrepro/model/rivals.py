"""Other ways to spend a table: what reviewers asked STEM to be compared with. Same signature as every FFN."""

import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.ffn import Stem, SwiGLU, matrix


class StemLowRank(Stem):
    """STEM with a narrow table: y = W_d (SiLU(W_g x) * W_r N[token]), N [vocab, rank], W_r the same for all tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.rank)
        self.widen = matrix(config.rank, config.ffn_width)

    def rows(self, tokens: Tensor) -> Tensor:
        """W_r N[token]: tokens [batch, seq] -> [batch, seq, ffn_width]."""
        return self.widen(self.table(tokens))


class PerLayerEmbedding(SwiGLU):
    """Gemma 3n style: a narrow gated row beside the dense FFN, y = SwiGLU(x) + W_p (GELU(W_n x) * N[token]), N [vocab, rank]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.narrow = matrix(config.width, config.rank)
        self.table = nn.Embedding(config.vocab, config.rank)
        self.project = matrix(config.rank, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        side = self.project(F.gelu(self.narrow(x), approximate="tanh") * self.table(tokens))
        return super().forward(x, tokens) + side


class InputAdd(SwiGLU):
    """Control: a row added to the residual beside the dense FFN, y = SwiGLU(x) + U[token], U [vocab, width]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.vocab, config.width)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return super().forward(x, tokens) + self.table(tokens)


def bigram_rows(tokens: Tensor, rows: int) -> Tensor:
    """Row of each pair (token before, token), by a multiplicative hash: tokens [batch, seq] -> [batch, seq] below `rows`.

    Before the first token stands END_OF_DOCUMENT.
    """
    before = F.pad(tokens, (1, 0), value=END_OF_DOCUMENT)[:, :-1]
    mixed = (before * 1000003 + tokens) * 2654435761 & 0xFFFFFFFF
    return (mixed >> 7) % rows


class NgramTable(Stem):
    """STEM addressed by two tokens: y = W_d (SiLU(W_g x) * U[hash(token before, token)]), as many rows as the vocabulary."""

    def rows(self, tokens: Tensor) -> Tensor:
        """U[hash(token before, token)]: tokens [batch, seq] -> [batch, seq, ffn_width]."""
        return self.table(bigram_rows(tokens, self.table.num_embeddings))
