"""Recall in context, on models whose right answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stemrepro.config.scores import Recall
from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.recall import made_up_words
from stemrepro.evaluation import recall
from tests.conftest import make_text, quiet, run_of, tables_of, with_vocab

ASKED = Recall(pairs=(2, 4), lengths=(17, 33), documents=6, batch=4)


@pytest.fixture(scope="module")
def place(tmp_path_factory, catalog, tiny):
    folder = make_text(tmp_path_factory.mktemp("recall"), catalog.mixes["recall-sample"], 289)
    run = run_of(folder, folder, "recall-sample", "dense", catalog.arms["dense"], with_vocab(tiny, 289))
    return run, folder


class Looker(torch.nn.Module):
    """Says what came after the same token before, the nearest time.

    `blind` says nothing; `slow` looks from the second query on.
    """

    def __init__(self, kind):
        super().__init__()
        self.kind, self.unused = kind, torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, 289)
        for k, row in enumerate(tokens.tolist()):
            for place, token in enumerate(row):
                before = [other for other in range(place) if row[other] == token]
                if (before and self.kind == "looks") or (len(before) > 1 and self.kind == "slow"):
                    logits[k, place, row[before[-1] + 1]] = 9.0
        return logits


def answers(monkeypatch, place, kind):
    monkeypatch.setattr(recall, "load_run", lambda _: Looker(kind))
    run, folder = place
    return recall.score(run, quiet, ASKED, folder / "tokenizer.json", 16, 16)


def test_who_looks_back_is_right_and_who_does_not_is_wrong(monkeypatch, place):
    seen = answers(monkeypatch, place, "looks")
    assert list(zip(seen["pairs"], seen["length"], strict=True)) == [(2, 17), (4, 17), (2, 33), (4, 33)]
    assert (seen["right"] == seen["queries"]).all()
    assert seen["queries"].tolist() == [6 * 6, 6 * 4, 6 * 14, 6 * 12]
    assert (answers(monkeypatch, place, "blind")["right"] == 0).all()


def test_first_queries_are_those_of_a_key_for_the_first_time(monkeypatch, place):
    slow = answers(monkeypatch, place, "slow")
    assert (slow["first_right"] == 0).all()
    np.testing.assert_array_equal(slow["right"], slow["queries"] - slow["first_queries"])


def test_a_line_per_seed_number_and_length(monkeypatch, place):
    result, run = answers(monkeypatch, place, "slow"), place[0]
    _, tables = tables_of("recall", [run, replace(run, seed=1)], [result, result])
    expected = [[seed, *line] for seed in (0, 1) for line in result.to_numpy().tolist()]
    assert tables["recall"].to_numpy().tolist() == expected


def test_questions_look_like_a_training_sequence(place):
    """Keys and values at the same positions, no end mark before them, so what a model has learnt of positions holds."""
    run, folder = place
    names, answers = (recall.token_of(folder / "tokenizer.json", words) for words in made_up_words(16, 16))
    blocks = TokenBlocks(run.blocks, "train", 33, 289)
    trained = blocks.at(np.arange(blocks.count)).numpy()[:, :32]
    key, value = recall.documents(16, 16, 4, 33, 6)
    questions = recall.as_trained(names[key], answers[value])
    for rows in (trained, questions):
        assert rows.shape[1] == 32
        assert np.isin(rows[:, ::2], names).all()
        assert np.isin(rows[:, 1::2], answers).all()
