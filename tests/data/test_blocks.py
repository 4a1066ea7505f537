"""Blocks against the text they came from; batches as a function of (seed, k)."""

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, sha256, write_json
from stemrepro.data import blocks as blocks_module
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.integrity import joined_hash, verified_hash


@pytest.fixture
def copy(sample, tmp_path):
    """A copy of the blocks that a test may damage."""
    for path in (sample / "blocks").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


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


def test_targets_are_inputs_shifted(sample):
    blocks = TokenBlocks(sample / "blocks", "train", 32, 300)
    rows = blocks.at(np.array([0, 5]))
    assert rows.shape == (2, 33)
    assert rows[1].tolist() == blocks.tokens[160:193].tolist()


def test_an_epoch_sees_every_block_once_and_seeds_differ(sample):
    blocks = TokenBlocks(sample / "blocks", "train", 32, 300)
    size = 7
    seen = np.concatenate([blocks.block_numbers(3, k, size) for k in range(2 * blocks.count // size + 1)])
    for epoch in range(2):
        assert sorted(seen[epoch * blocks.count : (epoch + 1) * blocks.count]) == list(range(blocks.count))
    assert not np.array_equal(seen[: blocks.count], seen[blocks.count : 2 * blocks.count])
    assert not np.array_equal(blocks.block_numbers(4, 0, size), seen[:size])


def test_a_batch_depends_on_seed_and_number_alone(sample):
    one = TokenBlocks(sample / "blocks", "train", 32, 300)
    other = TokenBlocks(sample / "blocks", "train", 32, 300)
    for k in (5, 0, 90, 5):
        assert one.batch(1, k, 4).equal(other.batch(1, k, 4))


def test_scoring_blocks_spread_over_each_source(sample):
    blocks = TokenBlocks(sample / "blocks", "validation", 32, 300)
    numbers, documents = blocks.spread(32 * 10)
    sources = np.array([d[1] for d in blocks.about["documents"]])[documents]
    assert documents.shape == (30, 32)
    assert len(set(numbers.tolist())) == 30
    assert all(len(set(row)) == 1 for row in sources[:, :1])
    for number, row in zip(numbers, documents, strict=True):
        for place in (0, 31):
            _, _, start, length = blocks.about["documents"][row[place]]
            assert start <= number * 32 + 1 + place < start + length


def cut(folder, cuts):
    """Write a split's tokens anew as several files; return the tokens."""
    index = read_json(folder / "index.json")
    dtype = np.uint16 if index["vocab"] <= 65536 else np.uint32
    tokens = np.fromfile(folder / "train.bin", dtype)
    parts = np.split(tokens, cuts)
    for number, part in enumerate(parts):
        part.tofile(folder / f"{number}.bin")
    files = [{"name": f"{n}.bin", "tokens": len(p), "sha256": sha256(folder / f"{n}.bin")} for n, p in enumerate(parts)]
    index["splits"]["train"] |= {"shards": files, "sha256": joined_hash(files)}
    write_json(folder / "index.json", index)
    (folder / "train.bin").unlink()
    return tokens


def test_several_files_are_one_sequence(sample, copy):
    """Cuts within a block, at its first token, and one file shorter than a block."""
    cut(copy, [50, 64, 70, 1001])
    one, several = TokenBlocks(sample / "blocks", "train", 32, 300), TokenBlocks(copy, "train", 32, 300)
    assert several.count == one.count
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
