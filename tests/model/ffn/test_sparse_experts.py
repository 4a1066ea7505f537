"""DeepSeek-V3's experts against its equations in a loop, and the bias against its algorithm."""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.sparse_experts import SparseExperts
from stemrepro.model.transformer import build
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.model.ffn.test_paper import silu
from tests.model.shapes import SMALL
from tests.training.test_train import report_every_step, train_until  # noqa: F401, a fixture

SHAPE = SMALL | {"vocab": 23, "ffn_width": 11, "experts": 4, "top_k": 2}
CONFIG = ModelConfig(**SHAPE, ffn="sparse-experts", replaced_layers=(1,))


@pytest.fixture
def ffn():
    torch.manual_seed(0)
    ffn = SparseExperts(CONFIG)
    for parameter in ffn.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return ffn


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    return torch.randn(3, 7, 8), torch.zeros(3, 7, dtype=torch.long)


def times(matrix, vector):
    return [sum(w * v for w, v in zip(row, vector, strict=True)) for row in matrix]


def expert(gate, up, down, vector):
    """One SwiGLU of lists."""
    return times(down, [silu(g) * u for g, u in zip(times(gate, vector), times(up, vector), strict=True)])


def chosen(ffn, vector):
    """The two experts of the largest score plus bias, and all scores."""
    scores = [1 / (1 + math.exp(-logit)) for logit in times(ffn.router.weight.tolist(), vector)]
    raised = [score + bias for score, bias in zip(scores, ffn.bias.tolist(), strict=True)]
    return sorted(range(4), key=lambda e: -raised[e])[:2], scores


@pytest.mark.parametrize("bias", [[0.0] * 4, [0.4, -0.3, 0.2, -0.4]])
def test_the_output_equals_a_plain_loop(ffn, inputs, bias):
    x, tokens = inputs
    ffn.bias.copy_(torch.tensor(bias))
    out, loads, changed = ffn(x, tokens), [0] * 4, 0
    parts = [[getattr(ffn.experts, name)[e].tolist() for name in ("gate", "up", "down")] for e in range(4)]
    shared = [getattr(ffn.shared, name).weight.tolist() for name in ("gate", "up", "down")]
    assert len(shared[0]) == len(parts[0][0]) == 4  # a third of 11, rounded up
    for b in range(3):
        for t in range(7):
            vector = x[b, t].tolist()
            best, scores = chosen(ffn, vector)
            changed += set(best) != set(sorted(range(4), key=lambda e: -scores[e])[:2])
            expected = expert(*shared, vector)
            for e in best:
                loads[e] += 1
                weight = scores[e] / sum(scores[i] for i in best)
                expected = [v + weight * w for v, w in zip(expected, expert(*parts[e], vector), strict=True)]
            torch.testing.assert_close(out[b, t], torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert ffn.load.tolist() == loads
    assert (changed > 0) == any(bias)


def test_the_bias_moves_once_a_step_by_the_loads_of_all_its_micro_batches(ffn, inputs):
    x, tokens = inputs
    bias = [0.0] * 4
    for step in range(5):
        loads = [0] * 4
        for part in range(2):
            ffn.start_step(f"0:{step}:1")
            micro = x * (1 if part else -1) + step
            for vector in micro.flatten(0, 1).tolist():
                for e in chosen(ffn, vector)[0]:
                    loads[e] += 1
            ffn(micro, tokens)
            assert ffn.bias.tolist() == pytest.approx(bias, abs=1e-7)
        assert ffn.load.tolist() == loads
        mean = sum(loads) / 4
        for e in range(4):
            error = mean - loads[e]
            bias[e] += 0.001 * ((error > 0) - (error < 0))
    assert len(set(bias)) > 1


def test_scoring_counts_nothing(ffn, inputs):
    with torch.no_grad():
        ffn(*inputs)
    ffn.eval()(*inputs)
    assert ffn.load.tolist() == [0] * 4


def test_loads_of_other_ranks_count(ffn, inputs, monkeypatch):
    ffn.start_step("0:0:1")
    ffn(*inputs)
    total = ffn.load + torch.tensor([100, 0, 0, 0])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda load: load.copy_(total))
    ffn.start_step("0:1:1")
    mean = float(total.sum()) / 4
    assert ffn.bias.tolist() == pytest.approx([math.copysign(0.001, mean - load) for load in total.tolist()])


def test_a_token_uses_as_many_channels_as_in_the_dense_ffn_and_its_width_sets_the_first_weights():
    shape = replace(CONFIG, width=64, heads=4, ffn_width=96)
    ffn = build(shape, seed=0).blocks[1].ffn
    assert 3 * ffn.shared.down.in_features == 3 * ffn.experts.down.shape[2] == 96
    for down in (ffn.shared.down.weight, ffn.experts.down):
        assert down.std().item() == pytest.approx(32**-0.5, rel=0.05)


@pytest.fixture
def run(make_run):
    run = make_run("topk-moe", seed=1)
    return replace(run, model=replace(run.model, ffn="sparse-experts"))


def test_a_resumed_run_has_the_same_biases_to_the_bit(run, report_every_step):  # noqa: F811
    train(run, quiet)
    whole, rows = load_file(run.weights), (run.folder / "metrics.jsonl").read_bytes()
    biases = [name for name in whole if name.endswith("ffn.bias")]
    assert biases
    steps = run.training.steps
    for name in biases:  # 11 of 12 steps have moved it, each by 0 or 0.001
        moved = whole[name] / 0.001
        torch.testing.assert_close(moved, moved.round(), atol=1e-3, rtol=0)
        assert 0 < moved.abs().max() <= steps - 1
    for path in run.folder.iterdir():
        path.unlink()
    run.folder.rmdir()
    train_until(run, 7)
    train(run, quiet)
    assert json.loads((run.folder / "provenance.json").read_text())["resumed_from"] == "step000000005.ckpt"
    again = load_file(run.weights)
    assert again.keys() == whole.keys()
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    assert (run.folder / "metrics.jsonl").read_bytes() == rows


@pytest.mark.slow
def test_a_compiled_model_computes_the_same_and_counts(inputs):
    torch.manual_seed(0)
    eager, model = build(CONFIG, seed=0), build(CONFIG, seed=0)
    tokens = torch.randint(0, 23, (2, 9))
    torch.testing.assert_close(torch.compile(model, backend="eager")(tokens), eager(tokens))
    assert model.blocks[1].ffn.load.tolist() == eager.blocks[1].ffn.load.tolist()
    assert int(model.blocks[1].ffn.load.sum()) == 2 * 9 * 2
