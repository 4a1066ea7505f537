"""Runs of STEM that resume from a dense run's end, against a plain loop through both stages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stemrepro.common.files import digest
from stemrepro.config.address import Address
from stemrepro.config.arm import run_settings
from stemrepro.config.scale import Extension, Variant
from stemrepro.model.transformer import build
from stemrepro.pipeline.runs import init_from
from stemrepro.training.module import LanguageModule
from stemrepro.training.retrofit_rows import row_text
from stemrepro.training.train import train
from tests.conftest import quiet, retrained
from tests.training.test_extension import plain_steps
from tests.training.test_train import rows

ROW_TOKENS = 10 * 32
"""Ten sequences of a text, which are five micro-batches; the vocabulary has tokens that they lack."""


@pytest.fixture
def parent(make_run):
    run = replace(make_run("dense"), keep_final_checkpoint=True)
    train(run, quiet)
    return run


def second(parent, catalog, tiny, arm, tables, row_tokens=ROW_TOKENS):
    """An arm that resumes from a dense run of twelve steps: six more."""
    extends = Extension(tables=tables, arm=None if tables == "kept" else "dense")
    address, variant = Address("second", arm), Variant(tokens=0.5, extends=extends)
    model, training = run_settings(address, catalog.arms[arm], variant, tiny)
    folder = parent.folder.parents[2] / "second" / f"{arm}-{tables}" / "seed0"
    run = replace(parent, address=address, model=model, training=training, folder=folder, keep_final_checkpoint=False)
    finished = init_from(run, [parent], tables)
    return replace(run, init_from=replace(finished, row_tokens=row_tokens if finished.row_tokens else 0))


def adamw(model):
    rest, tables = ([p for n, p in model.named_parameters() if ("table" in n) is wanted] for wanted in (False, True))
    settings = {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}
    return torch.optim.AdamW([{"params": group} for group in (rest, tables) if group], **settings)


@torch.no_grad()
def plain_table(model, layer, blocks, kind):
    """The rows that a loop over tokens gives, of the first ten sequences of the text."""
    sums, counts = np.zeros((model.config.vocab, model.config.width)), np.zeros(model.config.vocab)
    seen = []
    hook = model.blocks[layer].ffn.register_forward_hook(lambda _, read, __: seen.append(read))
    for k in range(5):
        model(blocks.batch(0, k, 2)[:, :-1])
    hook.remove()
    for x, tokens in seen:
        for vector, token in zip(x.flatten(0, 1).double().numpy(), tokens.flatten().tolist(), strict=True):
            sums[token] += vector
            counts[token] += 1
    assert counts.sum() == ROW_TOKENS
    assert (counts == 0).any()
    overall = sums.sum(axis=0) / counts.sum()
    rows = [sums[t] / counts[t] if counts[t] and kind == "token-means" else overall for t in range(len(counts))]
    return torch.from_numpy(np.stack(rows) @ model.blocks[layer].ffn.up.weight.double().numpy().T).float()


def test_interpolation_begins_as_the_dense_model_that_goes_on(parent, catalog, tiny):
    """The first batch's loss is dense's; W_u stays as it was, and the tables are those of a first draw."""
    stages = ("dense", "kept"), ("stem-interpolated", "anew")
    dense, stem = (second(parent, catalog, tiny, arm, tables) for arm, tables in stages)
    for run in (dense, stem):
        train(run, quiet)
    assert rows(stem)[0]["loss"] == pytest.approx(rows(dense)[0]["loss"], rel=1e-6)
    assert rows(stem)[-1]["loss"] != pytest.approx(rows(dense)[-1]["loss"], rel=1e-6)
    before, after = (load_file(run.weights) for run in (parent, stem))
    layers = stem.model.replaced_layers
    assert all(torch.equal(before[name], after[name]) for name in (f"blocks.{n}.ffn.up.weight" for n in layers))
    drawn = build(stem.model, stem.seed).state_dict()
    moved = [(after[name] - drawn[name]).abs().max() for name in (f"blocks.{n}.ffn.table.weight" for n in layers)]
    assert all(0 < float(most) < 0.2 for most in moved)


@pytest.mark.parametrize("kind", ["token-means", "mean-row"])
@pytest.mark.parametrize("arm", ["stem-full", "stem-third"])
def test_a_retrofit_equals_a_plain_loop_through_both_stages(parent, catalog, tiny, arm, kind):
    """Dense for twelve steps, then tables for up-projections and six steps more on the text that follows; the optimiser
    keeps its state of all parameters that stay."""
    child = second(parent, catalog, tiny, arm, kind)
    train(child, quiet)
    dense = build(parent.model, parent.seed)
    before = adamw(dense)
    plain_steps(parent, dense, before)
    stem = build(child.model, child.seed)
    blocks, old = LanguageModule(replace(parent, init_from=None)).text, dict(dense.named_parameters())
    optimizer = adamw(stem)
    with torch.no_grad():
        for name, parameter in stem.named_parameters():
            if "table" in name:
                parameter.copy_(plain_table(dense, int(name.split(".")[1]), blocks, kind))
            else:
                parameter.copy_(old[name])
                optimizer.state[parameter] = {key: v.clone() for key, v in before.state[old[name]].items()}
    losses = plain_steps(child, stem, optimizer, first=24)
    assert [row["loss"] for row in rows(child)] == pytest.approx(losses, abs=3e-5)
    assert len(losses) == 6
    for name, weight in load_file(child.weights).items():
        torch.testing.assert_close(weight, stem.state_dict()[name], atol=5e-5, rtol=1e-3)


def test_dense_goes_on_with_the_text_that_follows(parent, catalog, tiny):
    child = second(parent, catalog, tiny, "dense", "kept")
    assert child.init_from.batches == 24
    train(child, quiet)
    model = build(parent.model, parent.seed)
    optimizer = adamw(model)
    plain_steps(parent, model, optimizer)
    losses = plain_steps(child, model, optimizer, first=24)
    assert [row["loss"] for row in rows(child)] == pytest.approx(losses, abs=3e-5)


@pytest.mark.parametrize("row_tokens", [32, 96, ROW_TOKENS])
def test_the_text_is_the_first_that_the_dense_run_read(parent, catalog, tiny, row_tokens):
    child = second(parent, catalog, tiny, "stem-full", "mean-row", row_tokens)
    blocks = LanguageModule(replace(parent, init_from=None)).text
    tokens = torch.cat(list(row_text(child, blocks)))
    assert torch.equal(tokens, blocks.batch(0, 0, row_tokens // 32)[:, :-1])


def test_what_rows_are_made_of_is_part_of_the_settings(parent, catalog, tiny):
    child = second(parent, catalog, tiny, "stem-full", "token-means")
    made_of = {"parent": digest(parent.config), "tables": "token-means", "row_tokens": ROW_TOKENS}
    assert child.config["init_from"] == made_of
    assert init_from(child, [parent], "token-means").row_tokens == parent.training.tokens
    plenty = retrained(parent, tokens=10**6 * 128)
    assert init_from(child, [plenty], "token-means").row_tokens == 128 * 300
    assert "row_tokens" not in second(parent, catalog, tiny, "dense", "kept").config["init_from"]
