"""Tokenizers, and the same text in other vocabularies, counted in bytes."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.config.training import RunTraining
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.tokenizer import read_tokenizer, token_bytes, train_tokenizer
from stemrepro.data.vocabularies import own_text, write_vocabularies


def test_the_same_corpus_gives_the_same_bytes(sample, tmp_path):
    train_tokenizer(sample / "corpus" / "corpus.parquet", 300, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (sample / "tokenizer.json").read_bytes()


def test_text_survives_and_bytes_are_counted(sample):
    tokenizer = Tokenizer.from_file(str(sample / "tokenizer.json"))
    text = "In the beginning, 1790: café \n naïve — 漢字 🙂"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    sizes = token_bytes(tokenizer)
    assert sum(sizes[i] for i in ids) == len(text.encode())
    assert sizes[0] == 0
    assert tokenizer.get_vocab_size() == 300


def test_a_corpus_too_small_for_the_vocabulary(sample, tmp_path):
    with pytest.raises(UserError, match="lower vocab 60000"):
        train_tokenizer(sample / "corpus" / "corpus.parquet", 60000, tmp_path / "t.json")


def test_a_damaged_file_is_named(sample, tmp_path):
    assert read_tokenizer(sample / "tokenizer.json").get_vocab_size() == 300
    (tmp_path / "t.json").write_bytes((sample / "tokenizer.json").read_bytes()[:500])
    for path in (tmp_path / "t.json", tmp_path / "none.json"):
        with pytest.raises(UserError, match=rf"{path.name} is missing or damaged"):
            read_tokenizer(path)


@pytest.fixture(scope="module")
def data(sample, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "blocks").symlink_to(sample / "blocks")
    write_vocabularies(sample / "corpus" / "corpus.parquet", [600], folder / "vocabularies")
    return folder


def test_every_vocabulary_has_the_same_bytes(data):
    def size(blocks, vocab):
        split = TokenBlocks(blocks, "train", 32, vocab)
        return int(np.array(split.index["token_bytes"])[np.asarray(split.tokens)].sum())

    assert size(data / "vocabularies/600/blocks", 600) == size(data / "blocks", 300)


def test_a_run_has_the_tokens_of_as_much_text(data, tiny):
    whole = json.loads((data / "blocks/index.json").read_text())["splits"]["train"]["tokens"]
    text = own_text(600, data)
    assert text.blocks == data / "vocabularies/600/blocks"
    tokens = TokenBlocks(text.blocks, "train", 32, 600).about["tokens"]
    assert tokens < whole
    assert text.ratio == tokens / whole
    longer = RunTraining(**tiny.training.model_dump() | {"tokens": 32 * 4 * 400}, sequence=32, learning_rate=0.1)
    shorter = longer.same_text(text.ratio)
    assert shorter.tokens / tokens == pytest.approx(longer.tokens / whole, rel=0.005)  # whole steps
    assert shorter.eval_tokens == round(longer.eval_tokens * tokens / whole)
