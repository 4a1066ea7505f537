"""Rivals and their hashes against plain loops."""

import math
from collections import Counter

import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.ffn.input_add import InputAdd
from stemrepro.model.ffn.jtok import JTok
from stemrepro.model.ffn.ngram_table import NgramTable
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.ffn.stem_lowrank import StemLowRank
from stemrepro.model.pairs import bigram_rows
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL, rank=3)


def test_low_rank_is_stem_with_the_widened_table(inputs):
    narrow, stem = StemLowRank(CONFIG), Stem(CONFIG)
    stem.gate, stem.down = narrow.gate, narrow.down
    with torch.no_grad():
        for token in range(11):
            stem.table.weight[token] = narrow.widen.weight @ narrow.table.weight[token]
    torch.testing.assert_close(narrow(*inputs), stem(*inputs))


def test_input_add_adds_a_row(inputs):
    x, tokens = inputs
    ffn = InputAdd(CONFIG)
    torch.testing.assert_close(ffn(x, tokens) - SwiGLU.forward(ffn, x, tokens), ffn.table.weight[tokens])


def test_jtok_scales_the_dense_output_channel_by_channel(inputs):
    x, tokens = inputs
    ffn = JTok(CONFIG)
    torch.nn.init.normal_(ffn.scale, 0.5, 1)
    plain = SwiGLU.forward(ffn, x, tokens)
    for b in range(2):
        for t in range(5):
            row = [float(u) for u in ffn.table.weight[tokens[b, t]]]
            length = math.sqrt(sum(u**2 for u in row))
            factors = [1 + float(s) * u / length for s, u in zip(ffn.scale, row, strict=True)]
            torch.testing.assert_close(ffn(x, tokens)[b, t], plain[b, t] * torch.tensor(factors))


def test_bigram_rows_equal_whole_numbers(inputs):
    _, tokens = inputs
    rows = bigram_rows(tokens, 97)
    for row, expected in zip(tokens.tolist(), rows.tolist(), strict=True):
        for before, token, place in zip([0, *row[:-1]], row, expected, strict=True):
            assert place == (((before * 1000003 + token) * 2654435761 % 2**32) >> 7) % 97


def test_bigrams_spread_evenly_over_the_rows():
    pairs = torch.tensor([[a, b] for a in range(1, 101) for b in range(1, 101)])
    counts = Counter(bigram_rows(pairs, 1000)[:, 1].tolist())
    assert len(counts) > 990
    assert max(counts.values()) < 40  # 10 on average


def test_the_ngram_table_reads_the_pairs_row(inputs):
    x, tokens = inputs
    ffn, stem = NgramTable(CONFIG), Stem(CONFIG)
    stem.load_state_dict(ffn.state_dict())
    torch.testing.assert_close(ffn(x, tokens), stem(x, bigram_rows(tokens, 11)))
