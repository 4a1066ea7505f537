"""Memories that are addressed by two tokens: the hash of a pair, and a row of pairs at the model's input."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig


def bigram_rows(tokens: Tensor, rows: int) -> Tensor:
    """Return the row of each pair (token before, token): tokens [batch, seq] -> [batch, seq] below `rows`.

    The hash is multiplicative. END_OF_DOCUMENT comes before the first token.
    """
    before = F.pad(tokens, (1, 0), value=END_OF_DOCUMENT)[:, :-1]
    mixed = (before * 1000003 + tokens) * 2654435761 & 0xFFFFFFFF
    return (mixed >> 7) % rows


class PairInput(nn.Module):
    """A hashed pair's row at the input: e = E0[token] + s B[hash(token before, token)].

    B is [pair_rows, width], s one learnt number. These are the n-gram input embeddings of LongCat (arXiv 2601.21204),
    simplified: pairs alone, one hash, no projection, a sum for their mean. The learnt factor is modded-nanogpt's
    (#201), which has one per layer and adds the row there too. s is initialised so that a row is as large as a token's
    embedding: LongCat found that small input embeddings drown. A document's first token is paired with
    END_OF_DOCUMENT, also where a sequence begins within the document.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.pair_rows, config.width)
        self.scale = nn.Parameter(torch.empty(()))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return what is added to the input embeddings: tokens [batch, seq] -> [batch, seq, width]."""
        return self.scale * self.table(bigram_rows(tokens, self.table.num_embeddings))
