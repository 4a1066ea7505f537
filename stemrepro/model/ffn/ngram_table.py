"""A table that is addressed by two tokens."""

import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.ffn.stem import Stem


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
