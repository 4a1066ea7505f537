"""A table that is addressed by two tokens."""

from torch import Tensor

from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.pairs import bigram_rows


@ffn("ngram-table")
class NgramTable(Stem):
    """STEM addressed by two tokens: y = W_d (SiLU(W_g x) * U[hash(token before, token)]), U [vocab, ffn_width]."""

    row_address = "pair"

    def rows(self, tokens: Tensor) -> Tensor:
        """Return U[hash(token before, token)]: tokens [batch, seq] -> [batch, seq, ffn_width]."""
        return self.table(bigram_rows(tokens, self.table.num_embeddings))
