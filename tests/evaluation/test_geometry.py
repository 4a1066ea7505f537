"""Angles against plain loops, and vectors against the layers' own outputs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stemrepro.common.errors import UserError
from stemrepro.data.blocks import TokenBlocks
from stemrepro.evaluation.geometry import (
    chosen_places,
    cosines,
    density,
    ffn_vectors,
    score,
    statistics,
    tables_over_training,
)
from stemrepro.evaluation.weights import load_run
from stemrepro.model.ffn.base import table_parameters
from stemrepro.model.transformer import build
from stemrepro.training.train import train
from tests.conftest import quiet, tables_of


def test_cosines_equal_a_loop():
    vectors = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    rows = vectors.double().numpy()
    for centred, shift in ((False, 0), (True, rows.mean(axis=0))):
        expected = [
            (a - shift) @ (b - shift) / math.dist(a, shift + 0 * a) / math.dist(b, shift + 0 * b)
            for i, a in enumerate(rows)
            for b in rows[i + 1 :]
        ]
        assert np.allclose(cosines(vectors, centred), expected)


def test_statistics_of_known_values():
    values = torch.tensor([-0.5, 0.14, 0.14, 0.14, 0.9], dtype=torch.float64)
    result = statistics(values, 20)
    assert result["p95"] == pytest.approx(np.quantile([0.5, 0.14, 0.14, 0.14, 0.9], 0.95))
    assert result["mean"] == pytest.approx(0.164)
    assert result["mode"] == pytest.approx(0.15)  # the bin from 0.1 to 0.2
    assert density(values, 20).sum() * 0.1 == pytest.approx(1)


def test_random_rows_are_at_the_closed_form_floor():
    from stemrepro.measures.geometry import random_p95

    vectors = torch.randn(600, 48, generator=torch.Generator().manual_seed(0))
    assert statistics(cosines(vectors, False), 200)["p95"] == pytest.approx(random_p95(48), rel=0.01)
    assert random_p95(8192) == pytest.approx(1.96 / math.sqrt(8192), rel=1e-3)


@pytest.mark.parametrize("arm", ["dense", "stem-full", "token-only"])
def test_gated_vectors_give_the_ffns_output(make_run, arm):
    """W_d times the gated vector is what the layer's FFN returns at that place."""
    model = build(make_run(arm).model, 0)
    rows, positions = torch.randint(0, 300, (6, 20)), torch.tensor([3, 0, 19, 7, 7, 1])
    outputs = {}
    for layer, block in enumerate(model.blocks):
        block.ffn.register_forward_hook(lambda m, i, o, layer=layer: outputs.update({layer: o}))
    captured = ffn_vectors(model, rows, positions)
    assert set(captured) == {1, 2, 3}
    for layer, vectors in captured.items():
        middle, ffn = vectors["up"] if arm == "token-only" else vectors["gated"], model.blocks[layer].ffn
        assert torch.allclose(ffn.down(middle), outputs[layer][torch.arange(6), positions], atol=1e-5)
        if arm == "stem-full":
            assert torch.equal(vectors["up"], ffn.table.weight[rows[torch.arange(6), positions]])
    assert ("gated" in captured[1]) == (arm != "token-only")


def test_places_are_one_occurrence_each_of_distinct_tokens(make_run):
    blocks = TokenBlocks(make_run("dense").blocks, "validation", 32, 300)
    numbers, positions = chosen_places(blocks, 512, 40)
    tokens = blocks.at(numbers)[torch.arange(len(numbers)), torch.from_numpy(positions)]
    assert len(set(tokens.tolist())) == len(tokens) == 40
    assert np.array_equal(chosen_places(blocks, 512, 40), (numbers, positions))


@pytest.fixture
def trained(make_run):
    run = make_run("stem-third")
    train(run, quiet)
    return run


def test_tables_from_initialisation_to_end(trained):
    model = load_run(trained)
    tables_at = tables_over_training(trained, model)
    assert list(tables_at) == [0.0, 0.25, 0.5, 1.0]
    ((name, final),) = table_parameters(model).items()
    assert torch.equal(tables_at[1.0][1], final.detach())
    assert torch.equal(tables_at[0.0][1], table_parameters(build(trained.model, 0))[name].detach())
    steps = [(tables_at[share][1] - tables_at[0.0][1]).norm() for share in (0.25, 0.5, 1.0)]
    assert steps == sorted(steps)
    (trained.folder / "tables-050.safetensors").unlink()
    with pytest.raises(UserError, match=r"tables-050\.safetensors is missing"):
        tables_over_training(trained, model)
    (trained.folder / "tables-050.safetensors").write_bytes(b"garbage")
    with pytest.raises(UserError, match=r"tables-050\.safetensors is damaged"):
        tables_over_training(trained, model)


def test_tables_are_complete(trained, tiny):
    other = replace(trained, seed=1)
    results = [score(trained, quiet, tiny.geometry, 512)] * 2
    results[1] = results[1] | {"density": {key: 3 * values for key, values in results[1]["density"].items()}}
    about, tables = tables_of("geometry", [trained, other], results)
    assert about == {"width": 16, "ffn_width": trained.model.ffn_width, "layers": [1]}
    table = tables["cosines"].query("seed == 1")
    rows = table[(table.what == "rows") & (table.bucket == "all") & ~table.centred & (table.share == 1)]
    unit = F.normalize(table_parameters(load_run(trained))["blocks.1.ffn.table.weight"].detach().double(), dim=1)
    every = (unit @ unit.T)[*np.triu_indices(300, 1)].abs()
    assert rows["p95"].item() == pytest.approx(float(every.quantile(0.95)), abs=1e-6)
    spread = tables["spread"].set_index(["seed", "token"])["spread"]
    assert len(spread) == 600
    assert spread[1, 17] == pytest.approx(float(((unit @ unit[17]).abs().sum() - 1) / 299))
    never = table[(table.what == "rows") & (table.bucket == "0") & ~table.centred]
    assert never[never.share == 0]["p95"].item() == pytest.approx(never[never.share == 1]["p95"].item(), abs=0.01)
    rows = tables["density"].query("what == 'up:centred' and layer == 1")
    assert rows["bin"].tolist() == list(range(40))
    np.testing.assert_allclose(rows["density"], 2 * results[0]["density"]["up", True][0])


def test_tokens_that_no_table_was_sampled_at_are_left_out(make_run, trained, tiny):
    result = score(trained, quiet, tiny.geometry, 512)
    result["spread"][[0, 7]] = np.nan
    _, tables = tables_of("geometry", [trained], [result])
    assert tables["spread"]["token"].tolist() == [k for k in range(300) if k not in (0, 7)]
    dense = make_run("dense")
    train(dense, quiet)
    assert set(tables_of("geometry", [dense], [score(dense, quiet, tiny.geometry, 512)])[1]) == {"cosines", "density"}
