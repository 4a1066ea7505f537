"""What a model knows, fact by fact; questions as tokens, and what a model says to them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.config.scores import Knowledge
from stemrepro.data.atlas import FILE, read_atlas
from stemrepro.data.relations import held_out_prompt, trained_prompts
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.facts import TRAINED, score
from stemrepro.evaluation.prompts import ask
from stemrepro.evaluation.weights import load_run
from tests.conftest import quiet, tables_of

ASKED = Knowledge(pairs=3, batch=16)


@pytest.fixture(scope="module")
def given(atlas_sample):
    return {"asked": ASKED, "tokenizer_file": atlas_sample / "tokenizer.json", "facts": atlas_sample / "corpus" / FILE}


@pytest.fixture(scope="module")
def scored(atlas_run, given):
    run = atlas_run("stem-full")
    return run, score(run, quiet, **given)


def test_every_fact_is_scored_as_a_plain_loop_would(scored, given):
    (run, result), atlas, tokenizer = scored, read_atlas(given["facts"]), read_tokenizer(given["tokenizer_file"])
    model = load_run(run)
    assert result["nats"].shape == result["first"].shape == (len(atlas.facts), TRAINED + 2)
    for k in (0, 40, len(atlas.facts) - 1):
        fact = atlas.facts[k]
        prompts = trained_prompts(fact.relation, fact.entity)[:TRAINED]
        prompts += [held_out_prompt(fact.relation, fact.entity, which) for which in (0, 1)]
        for which in (0, 3, 9):
            row = [0, *tokenizer.encode(prompts[which]).ids]
            answer, nats, first = tokenizer.encode(f"{prompts[which]} {fact.answer}").ids[len(row) - 1 :], 0.0, True
            for token in answer:
                with torch.no_grad():
                    likely = model(torch.tensor([row]))[0, -1].softmax(-1)
                nats -= float(likely[token].log())
                first = first and int(likely.argmax()) == token
                row.append(token)
            assert result["nats"][k, which] == pytest.approx(nats, rel=1e-4)
            assert bool(result["first"][k, which]) == first


def test_lines_and_means(scored, given):
    run, result = scored
    about, tables = tables_of("facts", [run, replace(run, seed=1)], [result, result], given)
    facts = read_atlas(given["facts"]).facts
    assert tables["facts"]["answer"].tolist() == [fact.answer for fact in facts]
    for seed, lines in tables["answers"].groupby("seed"):
        assert seed in (0, 1)
        for line in lines.sample(20, random_state=seed).itertuples():
            assert line.nats == pytest.approx(result["nats"][line.fact, line.prompt], rel=1e-3)
            assert line.first == result["first"][line.fact, line.prompt]
    assert len(tables["answers"]) == 2 * len(facts) * (TRAINED + 2)
    stated = np.array([fact.told for fact in facts])
    assert 0 < (~stated).sum() < stated.sum()
    assert about["recall"] == {
        "trained": pytest.approx(result["first"][stated, :TRAINED].mean(), abs=1e-6),
        "held_out": pytest.approx(result["first"][stated, -1].mean(), abs=1e-6),
        "untold": pytest.approx(result["first"][~stated, -1].mean(), abs=1e-6),
    }


def test_a_run_that_diverged_is_not_scored(make_run, given):
    run = make_run("dense")
    write_json(run.folder / "diverged.json", {"step": 3})
    about, tables = tables_of("facts", [run], [score(run, quiet, **given)], given)
    assert (about, list(tables)) == ({}, ["facts"])


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
