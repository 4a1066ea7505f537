"""Runs that resume from another's end: weights and optimiser are carried over, tables kept or drawn anew."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest
from stemrepro.config.address import Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import Extension, Variant
from stemrepro.model.transformer import build
from stemrepro.training import callbacks
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import InitFrom
from stemrepro.training.schedule import schedule_factor
from stemrepro.training.train import train
from tests.conftest import quiet, written
from tests.training.test_train import rows, train_until


def longer(parent, catalog, tiny, tables="kept", arm="stem-full"):
    """The run that resumes from a parent: twice the length, half the tokens, ten times the rotary base."""
    variant = Variant(tokens=0.5, learning_rate=0.5, extends=Extension(sequence=2, rope=10, tables=tables))
    model, training = run_settings(Address("longer", arm), catalog.arms[arm], variant, tiny)
    init_from = InitFrom(parent.folder, digest(parent.config), tables, parent.training.tokens)
    folder = parent.folder.parents[2] / "longer" / arm / f"seed{parent.seed}"
    parent = replace(parent, address=Address("longer", arm), model=model, training=training, folder=folder)
    return replace(parent, init_from=init_from, keep_final_checkpoint=False)


@pytest.fixture
def parent(make_run):
    run = replace(make_run("stem-full"), keep_final_checkpoint=True)
    train(run, quiet)
    return run


def plain_steps(run, model, optimizer, first=0):
    """The steps of a run by a plain loop over the micro-batches from `first` on; returns their losses."""
    training, blocks, losses = run.training, LanguageModule(replace(run, init_from=None)).text, []
    parts = training.batch // training.micro_batch
    for step in range(training.steps):
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * schedule_factor(step, training)
        step_losses = []
        for k in range(parts * step, parts * (step + 1)):
            batch = blocks.batch(run.seed, first + k, training.micro_batch)
            loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            (loss / parts).backward()
            step_losses.append(float(loss.detach()))
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], training.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(np.mean(step_losses))
    return losses


@pytest.mark.parametrize("tables", ["kept", "anew"])
def test_two_stages_equal_a_plain_loop_through_both(parent, catalog, tiny, tables):
    """One model and one optimiser all the way; where tables are anew, both forget them in between."""
    child = longer(parent, catalog, tiny, tables)
    train(child, quiet)
    model = build(parent.model, parent.seed)
    table = {name: p for name, p in model.named_parameters() if "table" in name}
    backbone = [p for name, p in model.named_parameters() if name not in table]
    groups = [{"params": backbone}, {"params": list(table.values())}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    plain_steps(parent, model, optimizer)
    second = build(child.model, child.seed)  # another rotary base
    anew = {name: p.detach().clone() for name, p in second.named_parameters() if "table" in name}
    model.config = second.config
    if tables == "anew":
        with torch.no_grad():
            for name, parameter in table.items():
                parameter.copy_(anew[name])
                del optimizer.state[parameter]
    losses = plain_steps(child, model, optimizer)
    assert len(losses) == child.training.steps == 6
    assert [row["loss"] for row in rows(child)] == pytest.approx(losses, abs=2e-5)
    for name, weight in load_file(child.weights).items():
        torch.testing.assert_close(weight, model.state_dict()[name], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("stop", [3, 5])
def test_a_killed_extension_resumes_to_the_same_bytes(parent, catalog, tiny, stop, monkeypatch):
    child = longer(parent, catalog, tiny)
    train(child, quiet)
    expected = written(child)
    shutil.rmtree(child.folder)
    monkeypatch.setattr(callbacks.time, "monotonic", iter(range(10**9)).__next__)
    train_until(child, stop)
    train(child, quiet)
    assert written(child) == expected


def test_a_parent_that_is_missing_or_another_is_named(parent, catalog, tiny):
    child = longer(parent, catalog, tiny)
    other = replace(child, init_from=replace(child.init_from, parent="another"))
    with pytest.raises(UserError, match=r"end\.ckpt was made with other settings than those planned"):
        train(other, quiet, replace=True)
    parent.end.write_bytes(parent.end.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"end\.ckpt is damaged; delete it and train that run again"):
        train(child, quiet, replace=True)
    parent.end.unlink()
    with pytest.raises(UserError, match=r"end\.ckpt is missing; stem-full@longer seed 0 resumes from that run, train"):
        train(child, quiet, replace=True)
    (parent.folder / "diverged.json").write_text('{"step": 3}')
    with pytest.raises(UserError, match="resumes from a run that diverged; leave 'stem-full' out of that variant"):
        train(child, quiet, replace=True)


def test_the_passes_over_the_text_count_those_of_the_run_before(parent, catalog, tiny):
    child = longer(parent, catalog, tiny)
    train(child, quiet)
    blocks = LanguageModule(child).text
    both = (parent.training.tokens + child.training.tokens) / (blocks.count * blocks.length)
    assert json.loads((child.folder / "provenance.json").read_text())["epochs"] == pytest.approx(both, abs=1e-4)
    greedy = replace(child, init_from=replace(child.init_from, tokens=10**9))
    with pytest.raises(UserError, match="more than 4 are refused"):
        train(replace(greedy, folder=child.folder.with_name("other")), quiet)


def test_a_finished_run_without_its_end_is_trained_again_where_another_goes_on_from_it(parent):
    before = parent.weights.read_bytes()
    parent.end.unlink()
    assert not parent.ended
    assert replace(parent, keep_final_checkpoint=False).ended
    train(parent, quiet)
    assert parent.end.exists()
    assert parent.weights.read_bytes() == before


def test_what_it_goes_on_from_is_part_of_its_settings(parent, catalog, tiny):
    child = longer(parent, catalog, tiny)
    assert child.config["init_from"] == {"parent": digest(parent.config), "tables": "kept"}
    assert "init_from" not in parent.config
    train(child, quiet)
    with pytest.raises(UserError, match=r"init_from\.tables: kept there, anew requested"):
        train(longer(parent, catalog, tiny, "anew"), quiet)
    assert json.loads((child.folder / "provenance.json").read_text())["resumed_from"] is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extends": {"sequence": 2}, "width": 2}, "width can't stand with it"),
        ({"extends": {"tables": "token-means"}}, "are made of a dense arm; name it in 'arm'"),
        ({"extends": {"arm": "dense"}}, "arm 'dense': a dense arm has no tables to keep"),
        ({"extends": {"arm": "dense", "tables": "mean-row", "sequence": 4}}, "leave 'sequence' and 'text' out"),
    ],
)
def test_variants_that_can_not_extend(fields, words):
    with pytest.raises(ValueError, match=words):
        Variant.model_validate(fields)


def test_a_step_has_as_many_tokens_as_before(tiny):
    longer_scale = Variant(tokens=0.5, extends=Extension(sequence=2, rope=4)).at(tiny)
    assert longer_scale.model.sequence * longer_scale.training.batch == tiny.model.sequence * tiny.training.batch
    assert longer_scale.model.rope_base == 4 * tiny.model.rope_base
    with pytest.raises(ValueError, match=r"extends\.sequence 8: 256 tokens per sequence, 0\.5 of them per step"):
        Variant(extends=Extension(sequence=8)).at(tiny)
