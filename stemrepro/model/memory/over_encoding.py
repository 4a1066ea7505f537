import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.ffn.base import matrix
from stemrepro.model.memory.base import Memory, memory

ORDERS = (2, 3)
"""Lengths of the n-grams: the paper's default goes up to 3."""
SLICES = 4
"""Tables of each order, k. Chosen, because Table 3 of the paper has 4. Its rule of 256 channels is for wide models."""


def ngrams(tokens: Tensor, order: int) -> list[Tensor]:
    """Return the tokens of each place's n-gram, its own first: tokens [B, T] -> `order` of [B, T].

    What lies before the document is END_OF_DOCUMENT, which is token 0.
    """
    found = [tokens]
    for back in range(1, order):
        before = F.pad(tokens, (back, 0), value=END_OF_DOCUMENT)[:, : tokens.shape[1]]
        if back > 1:
            before = torch.where(found[-1] == END_OF_DOCUMENT, END_OF_DOCUMENT, before)
        found.append(before)
    return found


def ngram_rows(tokens: Tensor, order: int, vocab: int, rows: int) -> Tensor:
    """Return (x_t + x_(t-1) vocab + x_(t-2) vocab^2 + ...) mod rows: tokens [B, T] -> [B, T].

    The remainder is taken at each power, so that all fit into 64 bits.
    """
    found = torch.zeros_like(tokens)
    for token in reversed(ngrams(tokens, order)):
        found = (found * vocab + token) % rows
    return found


@memory("over-encoding", needs=("memory_rows",))
class OverEncoding(Memory):
    """Over-encoding (arXiv 2501.16975, section 3.2): e_t = E[x_t] + sum over n = 2, 3 and k tables of W_i E_i[h_i].

    The hash is tied to the tokens: h_i = (x_t + x_(t-1) vocab + ... + x_(t-n+1) vocab^(n-1)) mod m_i. Each of the
    2 k tables E_i [m_i, w] has other collisions, since m_i is another number; W_i is [width, w].
    Tokens before the text count as token 0.

    The paper's formula is this sum; the later code of LongCat divides it by 1 + 2 k, as does a port by Marin.
    Chosen, because our network norms before each block, so that an embedding 9 times smaller would drown: the sum.
    Chosen, because Table 1 counts m x width elements in all: w = width / (2 k), rounded up. The formula has
    width / (3 k), which is two thirds of that.
    Chosen, because sizes that share factors with the vocabulary collide (Table 4): m_i = memory_rows + 2 i + 1. The
    paper has m + 2 i; ours would be even, as memory_rows is a multiple of the vocabulary. LongCat adds the same 1.
    Chosen, because the paper leaves it open: tokens before the document count as token 0, too.
    """

    looks_back = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.vocab, number = config.vocab, SLICES * len(ORDERS)
        width = -(-config.width // number)
        self.sizes = [config.memory_rows + 2 * i + 1 for i in range(number)]
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in self.sizes)
        self.outs = nn.ModuleList(matrix(width, config.width) for _ in range(number))

    def inputs(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        for number, (table, out) in enumerate(zip(self.tables, self.outs, strict=True)):
            rows = ngram_rows(tokens, ORDERS[number // SLICES], self.vocab, self.sizes[number])
            embedded = embedded + out(table(rows))
        return embedded
