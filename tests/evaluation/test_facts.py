"""What a model knows, fact by fact."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stemrepro.common.files import write_json
from stemrepro.config.scores import Knowledge
from stemrepro.data.atlas import FILE, read_atlas
from stemrepro.data.relations import held_out_prompt, trained_prompts
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.facts import TRAINED, score
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
        prompts = [
            *trained_prompts(fact.relation, fact.entity)[:TRAINED],
            *(held_out_prompt(fact.relation, fact.entity, w) for w in (0, 1)),
        ]
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


def test_a_run_that_diverged_is_not_scored(atlas_run, given):
    run = atlas_run("dense", 1)
    run.weights.unlink()
    write_json(run.folder / "diverged.json", {"step": 3})
    assert score(run, quiet, **given) == {}
    about, tables = tables_of("facts", [run], [{}], given)
    assert (about, list(tables)) == ({}, ["facts"])
