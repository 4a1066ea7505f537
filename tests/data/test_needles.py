"""Documents of prose with needles, counted by a second parser, and in the blocks that models are trained on."""

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.integrity import read_corpus
from stemrepro.data.needles import BARE, Deal, clauses, documents_of, needle, prose_of
from stemrepro.data.tokenizer import read_tokenizer
from tests.conftest import make_text

PROSE = "In the beginning was light; and there was dark. Then came the day, and it was long"
DEAL = Deal(keys=16, values=8, of_document=(2, 4), clauses=3, needles=3, bare=0.5)


def pairs_of(text, keys, values):
    """Keys and values that follow each other, in order."""
    words = re.findall(r"\w+", text)
    return [(a, b) for a, b in pairwise(words) if a in keys and b in values]


def test_clauses_are_the_text():
    first = [" In the beginning was light;", " and there was dark."]
    assert clauses(PROSE) == [*first, " Then came the day,", " and it was long."]
    assert clauses("  ") == []


def test_a_key_keeps_its_value_within_a_document_alone():
    keys, values = DEAL.words()
    documents = list(documents_of([PROSE] * 400, np.random.default_rng(0), DEAL))
    seen = {}
    for bare, text in documents:
        pairs = pairs_of(text, keys, values)
        dealt = {}
        assert all(dealt.setdefault(key, value) == value for key, value in pairs)
        assert len(dealt) <= 4
        for key, value in dealt.items():
            seen.setdefault(key, set()).add(value)
        assert len(pairs) == 9 if bare else 3 <= len(pairs) <= 9
    assert all(key_values == set(values) for key_values in seen.values())
    assert set(seen) == set(keys)
    share = np.mean([bare for bare, _ in documents])
    assert 0.4 < share < 0.6


def test_prose_comes_back_whole_and_in_order():
    keys, _ = DEAL.words()
    texts = [text for bare, text in documents_of([PROSE] * 9, np.random.default_rng(1), DEAL) if not bare]
    assert "".join(prose_of(text, keys) for text in texts) == "".join(clauses(PROSE) * 9)
    bare = [text for bare, text in documents_of([PROSE] * 9, np.random.default_rng(1), DEAL) if bare]
    assert bare
    assert all(not re.search(r"[.,;]|light", text) for text in bare)


@pytest.fixture(scope="module")
def place(tmp_path_factory, catalog):
    return make_text(tmp_path_factory.mktemp("needles"), catalog.mixes["needles-sample"], 320)


def test_no_prose_is_in_two_splits_or_twice(place, catalog):
    keys, _ = Deal.of(catalog.mixes["needles-sample"]).words()
    rows = read_corpus(place / "corpus/corpus.parquet")
    assert {row["source"] for row in rows} == {"needles", "speeches", "bible"}
    long = Counter()
    for row in rows:
        if not row["id"].endswith(BARE):
            long.update({text for text in clauses(prose_of(row["text"], keys)) if len(text) > 60})
    assert len(long) > 500
    assert sum(n > 1 for n in long.values()) < 0.01 * len(long)  # the Bible quotes itself


def test_words_are_tokens_and_documents_are_longer_than_sequences(place, catalog):
    mix, tokenizer = catalog.mixes["needles-sample"], read_tokenizer(place / "tokenizer.json")
    keys, values = Deal.of(mix).words()
    assert all(len(tokenizer.encode(f" {word}").ids) == 1 for word in (*keys, *values))
    assert len(tokenizer.encode(needle(keys[0], values[0])).ids) == 3
    blocks = TokenBlocks(place / "blocks", "train", 64, 320)
    ends = (blocks.at(np.arange(blocks.count))[:, :-1] == 0).sum(axis=1).numpy()
    assert np.mean(ends == 0) > 0.2  # of the sample's short documents; the scale's are longer
