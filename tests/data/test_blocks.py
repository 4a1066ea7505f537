"""Blocks against the text they came from; batches as a function of (seed, k)."""

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.data.blocks import TokenBlocks


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


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"train\.bin is missing"):
        TokenBlocks(tmp_path, "train", 32, 300)


def test_a_truncated_file(copy):
    path = copy / "train.bin"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"train\.bin has .* truncated"):
        TokenBlocks(copy, "train", 32, 300)


def test_a_token_outside_the_vocabulary(sample):
    with pytest.raises(UserError, match="token id 299, outside the model's vocabulary of 299"):
        TokenBlocks(sample / "blocks", "train", 32, 299)


def test_too_few_tokens_for_a_block(sample):
    with pytest.raises(UserError, match="too few for one block"):
        TokenBlocks(sample / "blocks", "validation", 10**6, 300)
