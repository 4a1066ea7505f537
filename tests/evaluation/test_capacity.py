"""Bits of invented people that a model holds, against a plain loop and models that know all or nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.invented import people, words
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation import capacity
from stemrepro.evaluation.recall import token_of
from stemrepro.evaluation.weights import load_run
from stemrepro.training.train import train
from tests.conftest import make_text, quiet, run_of, tables_of, with_vocab


@pytest.fixture(scope="module")
def trained(tmp_path_factory, catalog, tiny):
    """A run of 12 steps on the small mix of people, the mix, and its tokenizer."""
    folder, mix = tmp_path_factory.mktemp("invented"), catalog.mixes["invented-sample"]
    make_text(folder, mix, 299)
    scale = with_vocab(tiny, 299, eval_tokens=28)
    run = run_of(folder, folder, "invented-sample", "stem-full", catalog.arms["stem-full"], scale)
    train(run, quiet)
    return run, mix, folder / "tokenizer.json"


WORDS, PEOPLE = words(16, 2, 4), people(16, 2, 4, 20)


def test_bits_are_those_of_a_plain_loop(trained):
    run, mix, tokenizer_file = trained
    result = capacity.score(run, quiet, mix, 20, tokenizer_file)
    vocabulary, (name, dealt), tokenizer = WORDS, PEOPLE, read_tokenizer(tokenizer_file)
    model, lacking, first = load_run(run), 0.0, 0
    for person in range(20):
        for attribute in range(2):
            (first_name, last_name), of = name[person], vocabulary["attribute"][attribute]
            prompt = [vocabulary["first"][first_name], vocabulary["last"][last_name], of]
            row = [tokenizer.encode(f" {word}").ids[0] for word in prompt]
            right = tokenizer.encode(f" {vocabulary['value'][attribute * 4 + dealt[person, attribute]]}").ids[0]
            with torch.no_grad():
                likely = model(torch.tensor([row]))[0, -1].softmax(-1)
            lacking -= float(likely[right].log2())
            first += int(likely.argmax()) == right
    assert (result["facts"], result["bits"]) == (40, 80)
    assert result["known"] == pytest.approx(80 - lacking, abs=1e-3)
    assert result["first"] == pytest.approx(first / 40)


class Oracle(torch.nn.Module):
    """Gives all of its belief to the values of `answers` {(first, last, attribute): value}, or to nothing."""

    def __init__(self, vocab, answers):
        super().__init__()
        self.vocab, self.answers, self.unused = vocab, answers, torch.nn.Parameter(torch.zeros(1))

    def forward(self, tokens):
        logits = torch.zeros(*tokens.shape, self.vocab)
        for k, row in enumerate(tokens.tolist()):
            if tuple(row) in self.answers:
                logits[k, -1, self.answers[tuple(row)]] = 50.0
        return logits


def test_who_knows_all_has_all_bits_and_who_guesses_among_all_words_has_less_than_none(trained, monkeypatch):
    run, mix, tokenizer_file = trained
    ids, answers = {part: token_of(tokenizer_file, names) for part, names in WORDS.items()}, {}
    for (a, b), values in zip(*PEOPLE, strict=True):
        for k in range(2):
            answers[ids["first"][a], ids["last"][b], ids["attribute"][k]] = ids["value"][k * 4 + values[k]]
    monkeypatch.setattr(capacity, "load_run", lambda _: Oracle(299, answers))
    assert capacity.score(run, quiet, mix, 20, tokenizer_file)["known"] == pytest.approx(80)
    monkeypatch.setattr(capacity, "load_run", lambda _: Oracle(299, {}))
    assert capacity.score(run, quiet, mix, 20, tokenizer_file)["known"] == pytest.approx(80 - 40 * np.log2(299))


def test_questions_begin_training_sequences(trained):
    """A question is the beginning of a person, and people begin sequences."""
    run, _, tokenizer_file = trained
    blocks = TokenBlocks(run.blocks, "train", 28, 299)
    tokens = blocks.at(np.arange(blocks.count)).numpy()
    starts = {*map(tuple, tokens[:, :28].reshape(-1, 7)[:, :3].tolist())}
    ids = {part: token_of(tokenizer_file, names) for part, names in WORDS.items()}
    questions = {(ids["first"][a], ids["last"][b], ids["attribute"][k]) for a, b in PEOPLE[0] for k in range(2)}
    assert questions <= starts


def test_a_line_per_seed(trained):
    run, mix, tokenizer_file = trained
    result = capacity.score(run, quiet, mix, 20, tokenizer_file)
    about, tables = tables_of("capacity", [run, replace(run, seed=1)], [result, result | {"known": 7.1234567}])
    assert about == {}
    expected = [[0, 20, 40, 80, round(result["known"], 6), result["first"]], [1, 20, 40, 80, 7.123457, result["first"]]]
    assert tables["capacity"].to_numpy().tolist() == expected
