"""Blocks against the text they came from; batches as a function of (seed, k)."""

import os
import shutil
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, sha256, write_json
from stemrepro.data import blocks as blocks_module
from stemrepro.data.blocks import LARGE, TokenBlocks, block_order, computed
from stemrepro.data.integrity import joined_hash, read_corpus, store_corpus, verified_hash
from stemrepro.data.tokenizer import read_tokenizer


@pytest.fixture
def copy(sample, tmp_path):
    """A copy of the blocks that a test may damage."""
    return shutil.copytree(sample / "blocks", tmp_path / "blocks")


def test_held_out_tokens_are_the_documents_with_ends_marked(sample):
    blocks = TokenBlocks(sample / "blocks", "validation", 32, 300)
    tokenizer = Tokenizer.from_file(str(sample / "tokenizer.json"))
    rows = pd.read_parquet(sample / "corpus" / "corpus.parquet").to_dict("records")
    texts = {(row["source"], row["id"]): row["text"] for row in rows if row["split"] == "validation"}
    assert len(blocks.about["documents"]) == len(texts)
    for name, source, start, length in blocks.about["documents"]:
        tokens = blocks.tokens[start : start + length].tolist()
        assert tokens[-1] == 0
        assert 0 not in tokens[:-1]
        assert tokenizer.decode(tokens[:-1]) == texts[source, name]


def test_an_epoch_sees_every_block_once_and_seeds_differ(sample):
    blocks, size = TokenBlocks(sample / "blocks", "train", 32, 300), 7
    seen = np.concatenate([blocks.block_numbers(3, k, size) for k in range(2 * blocks.count // size + 1)])
    for epoch in range(2):
        assert sorted(seen[epoch * blocks.count : (epoch + 1) * blocks.count]) == list(range(blocks.count))
    assert not np.array_equal(seen[: blocks.count], seen[blocks.count : 2 * blocks.count])
    assert not np.array_equal(blocks.block_numbers(4, 0, size), seen[:size])


def test_scoring_blocks_spread_over_each_source(sample):
    blocks = TokenBlocks(sample / "blocks", "validation", 32, 300)
    numbers, documents = blocks.spread(32 * 10)
    sources = np.array([d[1] for d in blocks.about["documents"]])[documents]
    assert (documents.shape, len(set(numbers.tolist()))) == ((30, 32), 30)
    assert all(len(set(row)) == 1 for row in sources[:, :1])
    for number, row in zip(numbers, documents, strict=True):
        for place in (0, 31):
            _, _, start, length = blocks.about["documents"][row[place]]
            assert start <= number * 32 + 1 + place < start + length


def cut(folder, cuts):
    """Write the training tokens anew as several files."""
    index, files = read_json(folder / "index.json"), []
    dtype = np.uint16 if index["vocab"] <= 65536 else np.uint32
    for number, part in enumerate(np.split(np.fromfile(folder / "train.bin", dtype), cuts)):
        path = folder / f"{number}.bin"
        part.tofile(path)
        files.append({"name": path.name, "tokens": len(part), "sha256": sha256(path)})
    index["splits"]["train"] |= {"shards": files, "sha256": joined_hash(files)}
    write_json(folder / "index.json", index)
    (folder / "train.bin").unlink()


def test_several_files_are_one_sequence(sample, copy):
    """Cuts within a block, at its first token, and one file shorter than a block."""
    cut(copy, [50, 64, 70, 1001])
    one, several = TokenBlocks(sample / "blocks", "train", 32, 300), TokenBlocks(copy, "train", 32, 300)
    assert several.count == one.count
    assert one.at(np.array([0, 5]))[1].tolist() == one.tokens[160:193].tolist()
    assert several.at(np.arange(one.count)).equal(one.at(np.arange(one.count)))
    assert several.batch(3, 7, 5).equal(one.batch(3, 7, 5))
    assert several.frequencies(300).tolist() == np.bincount(one.tokens[:], minlength=300).tolist()


def test_a_large_vocabulary_has_wider_tokens(copy):
    index = read_json(copy / "index.json")
    write_json(copy / "index.json", index | {"vocab": 70_000})
    wide = np.fromfile(copy / "train.bin", np.uint16).astype(np.uint32)
    wide[:33] += 69_000
    wide.tofile(copy / "train.bin")
    cut(copy, [40])
    assert TokenBlocks(copy, "train", 32, 70_000).at(np.array([0]))[0].tolist() == wide[:33].tolist()


def test_frequencies_of_a_long_text_are_those_of_pieces_evenly_spread(sample, monkeypatch):
    monkeypatch.setattr(blocks_module, "PIECE", 100)
    monkeypatch.setattr(blocks_module, "COUNTED", 1000)
    blocks = TokenBlocks(sample / "blocks", "train", 32, 300)
    pieces = -(-len(blocks.tokens) // 100)
    chosen = [blocks.tokens[100 * (k * pieces // 10) :][:100] for k in range(10)]
    assert blocks.frequencies(300).tolist() == np.bincount(np.concatenate(chosen), minlength=300).tolist()


def test_shards_are_read_whole_on_request_alone(copy):
    """At start sizes and the list of hashes are checked, so that nothing reads all of a large text."""
    cut(copy, [50])
    expected = verified_hash(copy)
    assert verified_hash(copy, whole=True) == expected
    with open(copy / "1.bin", "r+b") as file:
        file.write(b"\1")
    assert verified_hash(copy) == expected
    with pytest.raises(UserError, match=r"1\.bin is missing or garbled"):
        verified_hash(copy, whole=True)
    with open(copy / "1.bin", "ab") as file:
        file.write(b"\1")
    with pytest.raises(UserError, match=r"1\.bin has .* truncated"):
        verified_hash(copy)


KEYS = st.integers(0, 2**32 - 1)


@pytest.mark.slow
def test_small_texts_have_the_permutation_that_runs_were_made_with():
    """As stemrepro.data.blocks drew it before there was another."""
    expected = [np.random.Generator(np.random.PCG64([5, epoch])).permutation(11) for epoch in range(3)]
    assert block_order(np.arange(33), 11, 5).tolist() == np.concatenate(expected).tolist()
    assert expected[0].tolist() == [10, 7, 1, 3, 2, 4, 6, 0, 9, 5, 8]
    largest = np.random.Generator(np.random.PCG64([1, 0])).permutation(LARGE - 1)
    places = np.array([0, 1, LARGE // 2, LARGE - 2])
    assert block_order(places, LARGE - 1, 1).tolist() == largest[places].tolist()


@given(st.integers(1, 3000), KEYS, KEYS)
@settings(max_examples=60, deadline=None)
def test_every_block_is_read_once(count, seed, epoch):
    assert sorted(computed(np.arange(count), count, seed, epoch).tolist()) == list(range(count))


@given(st.integers(100, 3000), KEYS, KEYS)
@settings(max_examples=30, deadline=None)
def test_seeds_and_epochs_have_orders_of_their_own(count, seed, epoch):
    orders = [computed(np.arange(count), count, *key) for key in ((seed, epoch), (seed + 1, epoch), (seed, epoch + 1))]
    for one, other in pairwise([*orders, orders[0]]):
        assert (one == other).mean() < 0.1  # by chance one place in `count` agrees


@given(st.integers(LARGE, 2**62), KEYS, st.data())
@settings(max_examples=60, deadline=None)
def test_large_texts_have_distinct_blocks_in_range(count, seed, data):
    places = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=50, unique=True)))
    blocks = block_order(places, count, seed)
    assert len(set(blocks.tolist())) == len(places)
    assert 0 <= blocks.min() <= blocks.max() < count
    assert block_order(places + count, count, seed).tolist() == computed(places, count, seed, 1).tolist()


def test_the_order_of_a_large_text_takes_no_memory():
    tracemalloc.start()
    try:
        block_order(np.arange(64), 2**50, 0)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [LARGE, 3 * 10**7])
def test_a_large_order_looks_random(count):
    """Blocks are uniform, and neither a place nor the block before says where a block is."""
    blocks = block_order(np.arange(40_000), count, 3)
    cells = 64 * np.arange(len(blocks)) // len(blocks), 64 * blocks // count
    assert stats.chisquare(np.bincount(cells[1], minlength=64)).pvalue > 1e-4
    for one, other in ((cells[0], cells[1]), (cells[1][:-1], cells[1][1:])):
        table = np.bincount(64 * one + other, minlength=64 * 64).reshape(64, 64)
        assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("split", ["train", "tune", "validation"])
def test_one_changed_byte_is_found_and_the_file_named(copy, split):
    assert verified_hash(copy) == sha256(copy / "train.bin")
    data = bytearray((copy / f"{split}.bin").read_bytes())
    data[100] ^= 1
    (copy / f"{split}.bin").write_bytes(data)
    with pytest.raises(UserError, match=rf"{split}\.bin is missing or garbled"):
        verified_hash(copy)


def test_missing_files(copy, tmp_path):
    (copy / "tune.bin").unlink()
    with pytest.raises(UserError, match=r"tune\.bin is missing or garbled"):
        verified_hash(copy)
    with pytest.raises(UserError, match=r"index\.json is missing"):
        verified_hash(tmp_path / "none")


ROWS = [{"source": "s", "id": str(n), "split": "train", "text": f"text {n}"} for n in range(40)]


@pytest.mark.slow
def test_a_corpus_is_read_where_no_cache_can_be_written(tmp_path):
    """/dev/null is no folder for anybody."""
    store_corpus(ROWS, tmp_path / "corpus.parquet")
    code = "import sys; from stemrepro.data.integrity import *; rows = read_corpus(Path(sys.argv[1])); "
    code += "store_corpus(rows, Path(sys.argv[2])); print(len(rows))"
    command = [sys.executable, "-c", code, str(tmp_path / "corpus.parquet"), str(tmp_path / "again.parquet")]
    environment = os.environ | {"HF_HOME": "/dev/null/cache"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "40\n"
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "corpus.parquet").read_bytes()


def test_a_corpus_that_was_replaced_is_read_anew_whatever_its_time_says(tmp_path):
    path = tmp_path / "corpus.parquet"
    for text in ("old", "new"):
        store_corpus([ROWS[0] | {"text": text}], path)
        os.utime(path, (1, 1))
        assert [row["text"] for row in read_corpus(path)] == [text]


@pytest.mark.parametrize(("read", "name"), [(read_corpus, "corpus.parquet"), (read_tokenizer, "tokenizer.json")])
def test_what_the_system_refuses_is_not_called_damage(tmp_path, read, name):
    """A link to itself can't be opened, not even by root."""
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(UserError, match=rf"{name} can't be read"):
        read(tmp_path / name)
