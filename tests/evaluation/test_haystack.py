"""Needles: their places in the rows, rows that look like training text, and the scores of models with known answers."""

import re
from itertools import pairwise

import numpy as np
import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.config.scores import Haystack
from stemrepro.data.integrity import read_corpus
from stemrepro.data.needles import Deal
from stemrepro.evaluation import haystack
from stemrepro.evaluation.haystack import Haystacks
from tests.conftest import make_text, quiet, run_of, tables_of, with_vocab

VOCAB = 320
ASKED = Haystack(lengths=(48, 96), depths=(0, 0.5, 1), rows=6, batch=4)


@pytest.fixture(scope="module")
def place(tmp_path_factory, catalog, tiny):
    folder = make_text(tmp_path_factory.mktemp("haystack"), catalog.mixes["needles-sample"], VOCAB)
    scale = with_vocab(tiny, VOCAB)
    return folder, run_of(folder, folder, "needles-sample", "dense", catalog.arms["dense"], scale)


@pytest.fixture(scope="module")
def stacks(place, catalog):
    folder, _ = place
    deal = Deal.of(catalog.mixes["needles-sample"])
    return Haystacks(deal, folder / "corpus/corpus.parquet", folder / "tokenizer.json")


@pytest.mark.parametrize("length", [24, 48, 200])
@pytest.mark.parametrize("depth", [0, 0.3, 1])
def test_the_key_is_once_at_its_depth_and_again_at_the_end(stacks, length, depth):
    rows, right = stacks.rows(length, depth, 40)
    np.testing.assert_array_equal(rows, stacks.rows(length, depth, 40)[0])
    assert rows.shape == (40, length)
    places = []
    for row, value in zip(rows.tolist(), right, strict=True):
        *earlier, last = [k for k, token in enumerate(row) if token == row[-1]]
        assert last == length - 1
        (at,) = earlier
        assert row[at + 1] == stacks.answers[value]
        places.append(at / (length - 4))  # 1: where needle and question touch
    if depth in (0, 1):
        assert places == [depth] * 40
    elif length == 200:
        assert abs(np.mean(places) - depth) < 0.03
        assert max(abs(place - depth) for place in places) < 0.25


def test_other_keys_come_with_values_of_their_own(stacks):
    rows, right = stacks.rows(200, 0.5, 40)
    keys, values = ({stacks.tokens(f" {w}")[0] for w in words} for words in (stacks.keys, stacks.values))
    others = []
    for row in rows.tolist():
        dealt = {}
        pairs = [(a, b) for a, b in pairwise(row) if a in keys and b in values]
        assert all(dealt.setdefault(key, value) == value for key, value in pairs)
        others.append(len(dealt))
    assert min(others) >= 2
    assert len({int(value) for value in right}) > 8  # dealt out by chance


def test_rows_are_held_out_prose_as_training_text_has_it(stacks, place):
    """Without needles a row is a stretch of held-out prose; it begins anywhere in a clause and holds no end mark."""
    folder, _ = place
    read = read_corpus(folder / "corpus/corpus.parquet")
    strip = re.compile(rf" (?:{'|'.join(stacks.keys)}) (?:{'|'.join(stacks.values)})\.?")
    needles = [row for row in read if (row["source"], row["split"]) == ("needles", "validation")]
    held_out = "".join(strip.sub("", row["text"]) for row in needles)
    trained = "".join(row["text"] for row in read if row["split"] == "train")
    rows, _ = stacks.rows(96, 0.5, 30)
    begins = 0
    for row in rows.tolist():
        assert 0 not in row
        text = stacks.tokenizer.decode(row[:-1])
        clause = max(strip.sub("|", text).split("|")[1:-1], key=len)
        assert clause.strip() in held_out
        assert clause.strip() not in trained
        begins += text[0] == " "
    assert begins < 25


def test_what_does_not_fit_is_refused(stacks, place, sample):
    with pytest.raises(ValueError, match="the needle and its question alone have 4 tokens"):
        stacks.row(np.random.default_rng(0), 4, 0.5)
    folder, _ = place
    with pytest.raises(UserError, match="splits the words of the task"):
        Haystacks(stacks.deal, folder / "corpus/corpus.parquet", sample / "tokenizer.json")
    with pytest.raises(UserError, match="has no held-out prose of the source 'needles'"):
        Haystacks(stacks.deal, sample / "corpus/corpus.parquet", folder / "tokenizer.json")


class Looker(torch.nn.Module):
    """Says what came after the same token before.

    `near`: no further back than so many tokens; `nearest`: what came after the last key of any kind;
    `wordy`: a word of prose most of all, and then the right value.
    """

    caches, blocks = False, ()

    def __init__(self, stacks, near=10**6, nearest=False, wordy=False):
        super().__init__()
        self.near, self.nearest, self.wordy = near, nearest, wordy
        self.keys = {stacks.tokens(f" {key}")[0] for key in stacks.keys}
        self.stop, self.word = stacks.tokens(".")[0], stacks.tokens(" the")[0]
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, VOCAB)
        for k, row in enumerate(tokens.tolist()):
            place, token = len(row) - 1, row[-1]
            logits[k, place, self.stop] = 5.0
            if token not in self.keys:
                continue
            same = self.keys if self.nearest else {token}
            before = [other for other in range(max(0, place - self.near), place) if row[other] in same]
            if before:
                logits[k, place, row[before[-1] + 1]] = 9.0
            if self.wordy:
                logits[k, place, self.word] = 10.0
        return logits


def answers(monkeypatch, place, catalog, looker):
    folder, run = place
    monkeypatch.setattr(haystack, "load_run", lambda _: looker)
    files = folder / "tokenizer.json", folder / "corpus/corpus.parquet"
    return haystack.score(run, quiet, ASKED, catalog.mixes["needles-sample"], *files)


def test_who_looks_back_finds_everything(monkeypatch, place, catalog, stacks):
    seen = answers(monkeypatch, place, catalog, Looker(stacks))
    assert list(zip(seen["length"], seen["depth"], strict=True)) == [(n, d) for n in (48, 96) for d in (0, 0.5, 1)]
    assert (seen[["rows", "chosen", "generated"]] == 6).all(axis=None)
    assert (seen["other"] == 0).all()
    expected = np.log(np.exp(9) + np.exp(5) + VOCAB - 2) - 9
    np.testing.assert_allclose(seen["nats"], expected, rtol=1e-5)


def test_who_sees_a_little_finds_what_is_near(monkeypatch, place, catalog, stacks):
    seen = answers(monkeypatch, place, catalog, Looker(stacks, near=10)).set_index(["length", "depth"])["chosen"]
    assert (seen.xs(1, level="depth") == 6).all()
    assert (seen.xs(0, level="depth") <= 1).all()  # a value that stands first among equals is right by chance


def test_another_keys_value_is_counted_as_such(monkeypatch, place, catalog, stacks):
    seen = answers(monkeypatch, place, catalog, Looker(stacks, nearest=True)).set_index(["length", "depth"])
    assert (seen.xs(1, level="depth")["chosen"] == 6).all()
    deep = seen.xs(0, level="depth")
    assert (deep["other"] + deep["chosen"] == 6).all()
    assert (deep["other"] >= 5).all()


def test_choosing_and_generating_are_two_things(monkeypatch, place, catalog, stacks):
    seen = answers(monkeypatch, place, catalog, Looker(stacks, wordy=True))
    assert (seen["chosen"] == 6).all()
    assert (seen["generated"] == 0).all()


def test_a_line_per_seed_length_and_depth(monkeypatch, place, catalog, stacks):
    result = answers(monkeypatch, place, catalog, Looker(stacks))
    _, tables = tables_of("haystack", [place[1]], [result])
    expected = [[0, *line] for line in result.round(6).to_numpy().tolist()]
    assert tables["haystack"].to_numpy().tolist() == expected
