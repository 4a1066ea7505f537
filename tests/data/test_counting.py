"""Counts against plain loops."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from cachetools import LFUCache

from stemrepro.common.errors import UserError
from stemrepro.config.scale import Counting
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.counting import (
    CHUNK,
    chunk_keys,
    distinct_tokens,
    hits,
    lengths,
    static_hits,
    streams,
    write_counts,
)


def keys(count: int = 3000, vocab: int = 60) -> np.ndarray:
    """Zipf-like draws."""
    chance = 1 / np.arange(1, vocab + 1)
    return np.random.default_rng(1).choice(vocab, count, p=chance / chance.sum())


def test_distinct_tokens_equal_sets():
    stream = keys(1000)
    for row in distinct_tokens(stream, 100).itertuples():
        window = stream[row.window * 64 :][: row.length]
        assert row.distinct == len(set(window.tolist()))
    assert lengths(1000, 100) == [16, 32, 64]
    with pytest.raises(UserError, match="127 tokens are too few to count in: 128 are needed"):
        distinct_tokens(keys(127), 100)


def test_lfu_with_the_oldest_of_the_rarest_leaving_equals_a_loop():
    """As the official engine has it: the least used row leaves, of equally used ones the one used longest ago."""
    used: dict[int, tuple[int, int]] = {}
    expected = []
    for time, key in enumerate(keys().tolist()):
        expected.append(key in used)
        if key not in used and len(used) == 9:
            del used[min(used, key=used.get)]
        used[key] = (used.get(key, (0, 0))[0] + 1, time)
    assert hits(LFUCache(9), keys()).tolist() == expected


def test_no_unchanging_cache_beats_static_best():
    stream = keys()
    best = {key for key, _ in Counter(stream.tolist()).most_common(9)}
    assert static_hits(stream, 9, 60).mean() == pytest.approx(np.mean([key in best for key in stream.tolist()]))


def test_chunks_ask_once_for_each_token():
    stream = keys(CHUNK * 3 + 5)
    expected = [key for i in range(0, CHUNK * 3, CHUNK) for key in sorted(set(stream[i : i + CHUNK].tolist()))]
    assert chunk_keys(stream).tolist() == expected


def test_streams_hold_every_document_once(sample):
    tokens_of = streams(sample / "corpus" / "corpus.parquet", sample / "tokenizer.json")
    blocks = [TokenBlocks(sample / "blocks", split, 16, 300).tokens for split in ("train", "tune", "validation")]
    assert sum(map(len, tokens_of.values())) == sum(map(len, blocks))
    assert np.array_equal(np.bincount(np.concatenate(list(tokens_of.values()))), np.bincount(np.concatenate(blocks)))


@pytest.mark.slow
def test_files_are_complete_and_repeatable(sample, tmp_path, tiny):
    files = sample / "corpus" / "corpus.parquet", sample / "tokenizer.json"
    for name in ("a", "b"):
        write_counts(*files, tiny.counting, tmp_path / name)
    for file in ("distinct.csv", "cache.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    distinct, cache = (pd.read_csv(tmp_path / "a" / file) for file in ("distinct.csv", "cache.csv"))
    assert set(distinct["vocab"]) == {300, 320}
    assert distinct["length"].max() == 64
    assert set(cache["policy"]) == {"LRU", "LFU", "static-best"}
    assert cache["hit_rate"].between(0, 1).all()
    with pytest.raises(UserError, match="lower vocab 60000"):
        write_counts(*files, Counting(vocab=60000, length=64, cache_tokens=9), tmp_path / "c")
