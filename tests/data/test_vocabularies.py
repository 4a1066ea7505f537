"""The same text in other vocabularies, counted in bytes."""

import json

import numpy as np
import pytest

from stemrepro.config.training import RunTraining
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.vocabularies import own_text, write_vocabularies


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
