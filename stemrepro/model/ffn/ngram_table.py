from torch import Tensor

from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.pairs import bigram_rows


@ffn("ngram-table")
class NgramTable(Stem):
    """STEM addressed by two tokens: y = W_d (SiLU(W_g x) * U[hash(token before, token)]), U [vocab, ffn_width]."""

    row_address = "pair"

    def rows(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.table(bigram_rows(tokens, self.table.num_embeddings))
