"""Questions as tokens, and what a model says to them."""

import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.prompts import Question, answered, ask, padded


@pytest.fixture(scope="module")
def tokenizer(atlas_sample):
    return read_tokenizer(atlas_sample / "tokenizer.json")


def test_a_question_knows_where_the_name_stands(tokenizer):
    question = ask(tokenizer, "Today the capital of Saint Pierre is", "Saint Pierre", "Paris")
    assert question.prompt[0] == 0
    assert tokenizer.decode(list(question.entity)).strip() == "Saint Pierre"
    assert tokenizer.decode(list(question.answer)) == " Paris"
    assert list(question.places) == list(range(question.places[0], question.places[-1] + 1))
    whole = tokenizer.encode("Today the capital of Saint Pierre is Paris").ids
    assert [*question.prompt[1:], *question.answer] == whole


def test_the_first_mention_counts(tokenizer):
    one = ask(tokenizer, "of Spain is", "Spain", "x")
    two = ask(tokenizer, "of Spain is Madrid. The capital of Spain is", "Spain", "x")
    assert one.places == two.places


def test_a_prompt_that_lacks_the_name_says_so(tokenizer):
    with pytest.raises(UserError, match="the prompt 'of France is' does not name 'Spain'"):
        ask(tokenizer, "of France is", "Spain", "Madrid")
    assert ask(tokenizer, "of Spain is", "Spain", "").answer == ()


def test_answers_are_scored_as_a_plain_loop_would():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 7, generator=generator)
    prompts, answers = [(0, 1, 2), (0, 3)], [(4, 5), (6,)]
    logits[1, 1, 6] = 9.0
    scores = answered(logits, prompts, answers)
    for k, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        nats, first = 0.0, True
        for step, token in enumerate(answer):
            row = logits[k, len(prompt) - 1 + step].softmax(-1)
            nats -= float(row[token].log())
            first = first and int(row.argmax()) == token
        assert float(scores.nats[k]) == pytest.approx(nats, abs=1e-5)
        assert bool(scores.first[k]) == first
        torch.testing.assert_close(scores.next[k].exp(), logits[k, len(prompt) - 1].softmax(-1))
    assert scores.first.tolist() == [False, True]


def test_rows_are_padded_on_the_right():
    assert padded([(1, 2, 3), (4,)]).tolist() == [[1, 2, 3], [4, 0, 0]]
    assert Question((0, 5, 6), (1, 2), (7,)).entity == (5, 6)
