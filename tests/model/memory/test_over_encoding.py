"""Over-encoding against the paper's formula, written as a loop over places, orders and slices."""

import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.over_encoding import OverEncoding, ngram_rows
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"width": 16}, memory="over-encoding", memory_rows=22)
TOKENS = torch.tensor([[1, 3, 3, 0, 10, 5], [2, 1, 4, 3, 7, 7]])


def before(row, place, back):
    """The token so many places before, or 0 where the document has begun since."""
    passed = row[max(place - back, 0) : place]
    return 0 if place < back or 0 in passed[1:] else passed[0]


def test_the_input_equals_the_papers_formula():
    torch.manual_seed(0)
    memory = OverEncoding(CONFIG)
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter)
    assert [(table.num_embeddings, table.embedding_dim) for table in memory.tables] == [
        (rows, 2) for rows in (23, 25, 27, 29, 31, 33, 35, 37)
    ]
    embedded = torch.randn(2, 6, 16)
    got = memory.inputs(embedded, TOKENS)
    for b, row in enumerate(TOKENS.tolist()):
        for t, token in enumerate(row):
            pair = token + 11 * before(row, t, 1)
            triple = pair + 121 * before(row, t, 2)
            expected = embedded[b, t].tolist()
            for slice_ in range(8):
                table, out = memory.tables[slice_].weight.tolist(), memory.outs[slice_].weight.tolist()
                found = table[(pair if slice_ < 4 else triple) % (23 + 2 * slice_)]
                for channel in range(16):
                    expected[channel] += sum(w * v for w, v in zip(out[channel], found, strict=True))
            torch.testing.assert_close(got[b, t], torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_numbers_of_large_vocabularies_are_exact():
    vocab, rows = 3_000_017, 40_000_003  # the square of the vocabulary times a token is above 2**63
    tokens = torch.tensor([[vocab - 1, vocab - 2, vocab - 3]])
    number = (vocab - 3) + (vocab - 2) * vocab + (vocab - 1) * vocab**2
    assert int(ngram_rows(tokens, 3, vocab, rows)[0, 2]) == number % rows
