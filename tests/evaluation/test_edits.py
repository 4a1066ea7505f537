"""Trials of edits: which cases, which methods, and what comes of them against plain passes."""

import numpy as np
import pytest
import torch

from stemrepro.common.files import write_json
from stemrepro.config.scores import Knowledge
from stemrepro.data.atlas import FILE, read_atlas
from stemrepro.data.tokenizer import read_tokenizer, token_bytes
from stemrepro.evaluation.edits import FIELDS, Editor, cases, drawn_instead, methods, score
from stemrepro.evaluation.prompts import Question
from stemrepro.evaluation.weights import load_run
from tests.conftest import quiet, tables_of

ASKED = Knowledge(pairs=3, batch=5)


@pytest.fixture(scope="module")
def given(atlas_sample):
    return {"asked": ASKED, "tokenizer_file": atlas_sample / "tokenizer.json", "facts": atlas_sample / "corpus" / FILE}


@pytest.fixture(scope="module")
def every_case(given):
    return cases(read_atlas(given["facts"]), read_tokenizer(given["tokenizer_file"]), ASKED.pairs)


@pytest.fixture(scope="module")
def result(atlas_run, given):
    return score(atlas_run("stem-full"), quiet, **given)


def test_cases_are_told_facts_with_other_answers_of_every_kind_of_lengths(every_case, given):
    facts = {(fact.entity, fact.relation): fact for fact in read_atlas(given["facts"]).facts}
    pairs = {}
    for case in every_case:
        source, target = facts[case.source, case.relation], facts[case.target, case.relation]
        assert source.told
        assert target.told
        assert source.answer != target.answer
        difference = len(case.question.places) - len(case.aim.places)
        assert case.lengths == ("equal" if difference == 0 else "longer" if difference > 0 else "shorter")
        pairs.setdefault(case.lengths, set()).add((case.source, case.target))
    assert {kind: len(members) for kind, members in pairs.items()} == {"equal": 3, "longer": 3, "shorter": 3}
    assert cases(read_atlas(given["facts"]), read_tokenizer(given["tokenizer_file"]), ASKED.pairs) == every_case


def test_every_method_has_its_cases(result, every_case):
    names = methods(3)
    assert result["tables"] == 3
    assert result.keys() == {"known", "tables", *names}
    for name, method in names.items():
        count = sum(case.lengths == method.lengths for case in every_case)
        assert {field: len(values) for field, values in result[name].items()} == dict.fromkeys(FIELDS, count)
    assert "wrong-layer" not in methods(1)
    assert [name for name in methods(3) if name.startswith("layers")] == ["layers-1", "layers-2"]


def test_rows_and_input_together_give_the_targets_distribution(result):
    np.testing.assert_allclose(result["both"]["to_target"], 0, atol=1e-4)
    assert (np.abs(result["rows"]["to_target"]) > 1e-6).any()
    np.testing.assert_allclose(result["beside-unedited"]["to_source"], 0, atol=1e-6)


def test_trials_are_those_of_a_plain_pass(atlas_run, given, every_case, result):
    """Rows, one case: the layers get other tokens, as test_editing does; here the numbers that are kept."""
    model, lengths = load_run(atlas_run("stem-full")), token_bytes(read_tokenizer(given["tokenizer_file"]))
    equal = [case for case in every_case if case.lengths == "equal"]
    case, place = equal[1], 1
    tokens = torch.tensor([[*case.question.prompt, *case.aim.answer]])
    exchanged = tokens.clone()
    exchanged[0, list(case.question.places)] = torch.tensor(case.aim.entity)
    for block in model.blocks:
        if hasattr(block.ffn, "table"):
            block.ffn.register_forward_pre_hook(lambda _, inputs: (inputs[0], exchanged))
    with torch.no_grad():
        likely = model(tokens)[0].softmax(-1)
    first = len(case.question.prompt) - 1
    steps = [likely[first + k, token] for k, token in enumerate(case.aim.answer)]
    assert result["rows"]["new"][place] == pytest.approx(float(torch.stack(steps).prod()), rel=1e-3)
    hits = [int(likely[first + k].argmax()) == token for k, token in enumerate(case.aim.answer)]
    assert bool(result["rows"]["success"][place]) == all(hits)
    clean = Editor(load_run(atlas_run("stem-full")), lengths)
    with torch.no_grad():
        aim = clean.answers([case.aim], [case.aim]).next[0]
    edited = likely[first].log()
    assert result["rows"]["to_target"][place] == pytest.approx(float((edited.exp() * (edited - aim)).sum()), abs=1e-4)


def test_drawn_tokens_stand_at_the_names_places_alone():
    question = Question((0, 5, 6, 7, 8), (2, 3), (9,))
    drawn = drawn_instead(question, 1000, np.random.default_rng(0))
    assert [drawn.prompt[k] for k in (0, 1, 4)] == [0, 5, 8]
    assert drawn.prompt[2:4] != question.prompt[2:4]
    assert drawn.places == question.places


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["dense", "value-embeddings", "ngram-table", "stem-third"])
def test_every_kind_of_arm_is_edited_and_written(atlas_run, given, every_case, arm):
    run = atlas_run(arm)
    scored = score(run, quiet, **given)
    about, tables = tables_of("edits", [run], [scored], given)
    assert tables["cases"]["source"].tolist() == [case.source for case in every_case]
    assert about == {"methods": list(methods(scored["tables"])), "tables": scored["tables"]}
    assert tables["known"]["known"].tolist() == scored["known"].tolist()
    for name, lines in tables["edits"].groupby("method"):
        lengths = methods(scored["tables"])[name].lengths
        assert lines["case"].tolist() == [k for k, case in enumerate(every_case) if case.lengths == lengths]
        for field in FIELDS:
            np.testing.assert_allclose(lines[field], scored[name][field], rtol=1e-3, atol=1e-7)


def test_a_run_that_diverged_has_cases_and_no_trials(make_run, given, every_case):
    run = make_run("dense")
    write_json(run.folder / "diverged.json", {"step": 3})
    about, tables = tables_of("edits", [run], [score(run, quiet, **given)], given)
    assert about == {"methods": [], "tables": 0}
    assert {name: len(frame) for name, frame in tables.items()} == {"cases": len(every_case)}
