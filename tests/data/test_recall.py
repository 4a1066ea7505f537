"""Keys and values: what a document holds, and that it fills a training sequence."""

import numpy as np
import pytest

from stemrepro.config.mixes import MOST_WORDS, RecallMix
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.recall import made_up_words, pairs_and_queries, recall_documents
from stemrepro.data.tokenizer import read_tokenizer
from tests.conftest import make_text

MIX = RecallMix(kind="recall", keys=16, values=16, pairs=(2, 4), length=33, documents=40)


def test_words_are_all_different():
    keys, values = made_up_words(64, MOST_WORDS - 64)
    assert len({*keys, *values}) == len([*keys, *values]) == MOST_WORDS


@pytest.mark.parametrize(("pairs", "length"), [(2, 32), (8, 32), (8, 33)])
def test_every_key_is_given_once_and_keeps_its_value(pairs, length):
    key, value = pairs_and_queries(np.random.default_rng(0), 16, 16, pairs, length)
    assert (len(key), len(set(key[:pairs]))) == (length // 2, pairs)
    dealt = dict(zip(key[:pairs], value[:pairs], strict=True))
    assert all(dealt[k] == v for k, v in zip(key, value, strict=True))


def test_values_are_dealt_out_anew():
    dealt = {}
    for seed in range(200):
        key, value = pairs_and_queries(np.random.default_rng(seed), 4, 8, 4, 16)
        for k, v in zip(key[:4], value[:4], strict=True):
            dealt.setdefault(int(k), []).append(int(v))
    assert all(len(set(values)) == 8 for values in dealt.values())


def test_splits_share_no_document():
    documents = recall_documents(16, 16, (2, 4), 33, 300)
    texts = {split: {d.text for d, of in documents if of == split} for split in ("train", "tune", "validation")}
    assert [len(members) for members in texts.values()] == [300, 256, 256]
    assert not texts["train"] & texts["validation"]
    assert not texts["tune"] & texts["validation"]


def test_a_block_is_a_document(tmp_path):
    make_text(tmp_path, MIX, 257 + 32)
    blocks, tokenizer = TokenBlocks(tmp_path / "blocks", "train", 33, 289), read_tokenizer(tmp_path / "tokenizer.json")
    assert blocks.about["tokens"] == 40 * 33
    for row in blocks.at(np.arange(blocks.count)).tolist():
        assert row[32] == 0  # after a value: no key is ever answered by the end
        assert 0 not in row[:32]
        words = [tokenizer.decode([token]).strip() for token in row[:32]]
        pairs = list(zip(words[::2], words[1::2], strict=True))
        dealt = {}
        assert all(dealt.setdefault(key, value) == value for key, value in pairs)
        assert len(dealt) in (2, 4)
