"""Invented people: who they are, what is stated of them, and that fewer are the first of more."""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import InventedMix
from stemrepro.data.integrity import read_index
from stemrepro.data.invented import EVERY, invented_documents, people, sentence, words
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.data.vocabularies import own_text, write_people
from tests.conftest import make_text

MIX = InventedMix(kind="invented", names=8, attributes=3, values=4, people=40, exposures=5)


def test_fewer_people_are_the_first_of_more():
    (few, dealt), (many, more) = people(8, 3, 4, 10), people(8, 3, 4, 64)
    np.testing.assert_array_equal(few, many[:10])
    np.testing.assert_array_equal(dealt, more[:10])
    assert len({tuple(name) for name in many}) == 64
    with pytest.raises(ValueError, match="make 64 people, not 65"):
        people(8, 3, 4, 65)


def test_names_tell_nothing_of_values():
    name, dealt = people(64, 4, 32, 4096)
    table = np.zeros((64, 32))
    np.add.at(table, (name[:, 0], dealt[:, 0]), 1)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    assert statistic == pytest.approx(63 * 31, abs=4 * np.sqrt(2 * 63 * 31))  # chi-square of independence


def test_a_sentence_says_every_value_after_its_attribute():
    vocabulary, (name, dealt) = words(8, 3, 4), people(8, 3, 4, 5)
    chosen = sentence(vocabulary, name[2], dealt[2], np.array([2, 0, 1])).split()
    assert chosen[:2] == [vocabulary["first"][name[2, 0]], vocabulary["last"][name[2, 1]]]
    assert chosen[2::2] == [vocabulary["attribute"][k] for k in (2, 0, 1)]
    assert chosen[3::2] == [vocabulary["value"][k * 4 + dealt[2, k]] for k in (2, 0, 1)]


def test_everybody_is_described_equally_often_in_changing_orders():
    documents = invented_documents(8, 3, 4, 40, 5)
    train = [document.text for document, split in documents if split == "train"]
    by_name = {}
    for text in train:
        by_name.setdefault(" ".join(text.split()[:2]), []).append(text)
    assert {len(texts) for texts in by_name.values()} == {5}
    assert len(by_name) == 40
    assert max(len(set(texts)) for texts in by_name.values()) > 2
    held_out = [split for _, split in documents if split != "train"]
    assert held_out.count("tune") == held_out.count("validation") == 40 / EVERY


def test_texts_about_other_numbers_of_people(tmp_path):
    vocab = 257 + 16 + 3 + 12
    make_text(tmp_path, MIX, vocab)
    write_people(MIX, [12, 64], tmp_path / "tokenizer.json", tmp_path / "people")
    tokens = 2 + 2 * 3 + 1
    for size in (12, 64):
        text = own_text(vocab, tmp_path, size)
        assert text.ratio == 1.0
        assert read_index(text.blocks)["splits"]["train"]["tokens"] == size * 5 * tokens
    assert own_text(vocab, tmp_path).blocks == tmp_path / "blocks"
    assert read_index(tmp_path / "blocks")["splits"]["train"]["tokens"] == 40 * 5 * tokens
    tokenizer = read_tokenizer(tmp_path / "tokenizer.json")
    assert all(len(tokenizer.encode(f" {word}").ids) == 1 for part in words(8, 3, 4).values() for word in part)
    with pytest.raises(UserError, match=r"people/13/blocks has no text yet; run 'stemrepro data --scale "):
        own_text(vocab, tmp_path, 13)
