"""Controls against plain loops: what each takes away, and that nothing else is left."""

import math
from dataclasses import replace

import torch
from safetensors.torch import load_file

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.ffn.stem_interpolated import HALF_LIFE, StemInterpolated
from stemrepro.model.ffn.stem_normed import StemNormed
from stemrepro.model.ffn.stem_slots import StemSlots
from stemrepro.model.ffn.up_removed import UpRemoved
from stemrepro.model.transformer import build
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.model.ffn.test_paper import by_loop, silu
from tests.model.shapes import SMALL

SHAPE = SMALL | {"layers": 3}
CONFIG = ModelConfig(**SHAPE)


def test_up_removed_equals_a_plain_loop(inputs):
    x, tokens = inputs
    ffn = UpRemoved(CONFIG)
    expected = by_loop(ffn, x, tokens, lambda f, v, _: [silu(g @ v) for g in f.gate.weight])
    torch.testing.assert_close(ffn(x, tokens), expected)


def test_interpolation_equals_a_plain_loop_and_ends_as_stem(inputs):
    """Its dense share is 1 at a run's first step and a half after HALF_LIFE; a model that is read has none."""
    x, tokens = inputs
    ffn, stem = StemInterpolated(CONFIG), Stem(CONFIG)
    stem.load_state_dict({name: value for name, value in ffn.state_dict().items() if name != "up.weight"})
    torch.testing.assert_close(ffn(x, tokens), stem(x, tokens))
    for step, share in ((0, 1.0), (HALF_LIFE, 0.5), (3 * HALF_LIFE, 0.125)):
        ffn.start_step(f"7:{step}:2")

        def middle(f, v, token, share=share):
            ups = share * (f.up.weight @ v) + (1 - share) * f.table.weight[token]
            return [silu(g @ v) * float(u) for g, u in zip(f.gate.weight, ups, strict=True)]

        torch.testing.assert_close(ffn(x, tokens), by_loop(ffn, x, tokens, middle))
        places = torch.tensor([0, 1]), torch.tensor([2, 4])
        gated = ffn.gate_vectors(x, places) * ffn.up_vectors(x, tokens, places)
        torch.testing.assert_close(gated @ ffn.down.weight.T, ffn(x, tokens)[places])
    assert not ffn.up.weight.requires_grad


def test_slots_read_the_row_that_the_random_router_variants_at(inputs):
    x, tokens = inputs
    ffn = StemSlots(replace(CONFIG, slots=3))
    assert ffn.table.weight.shape == (33, 10)
    seen = set()

    def middle(f, v, token):
        scores = [float(row @ v) for row in f.router.weight]
        top_k = scores.index(max(scores))
        seen.add(top_k)
        row = f.table.weight.unflatten(0, (11, 3))[token, top_k]
        return [silu(g @ v) * float(u) for g, u in zip(f.gate.weight, row, strict=True)]

    torch.testing.assert_close(ffn(x, tokens), by_loop(ffn, x, tokens, middle))
    assert len(seen) > 1
    places = torch.tensor([0, 1]), torch.tensor([2, 4])
    gated = ffn.gate_vectors(x, places) * ffn.up_vectors(x, tokens, places)
    torch.testing.assert_close(gated @ ffn.down.weight.T, ffn(x, tokens)[places])


def test_the_router_of_slots_is_never_trained(make_run):
    run = make_run("stem-slots")
    train(run, quiet)
    before, after = build(run.model, run.seed).state_dict(), load_file(run.weights)
    routers = [name for name in after if name.endswith("ffn.router.weight")]
    assert len(routers) == 3
    assert all(torch.equal(before[name], after[name]) for name in routers)
    assert len({float(after[name].sum()) for name in routers}) == 3  # one a layer
    assert not torch.equal(before["blocks.1.ffn.table.weight"], after["blocks.1.ffn.table.weight"])


def normed(row, gain):
    """RMSNorm of a list of numbers, from its definition."""
    root = math.sqrt(sum(float(v) ** 2 for v in row) / len(row) + 1e-5)
    return torch.tensor([float(v) / root * float(g) for v, g in zip(row, gain, strict=True)])


def test_normed_rows_equal_a_plain_loop(inputs):
    x, tokens = inputs
    ffn = StemNormed(CONFIG)
    torch.nn.init.normal_(ffn.row_norm.weight, 1, 0.3)

    def middle(f, v, token):
        row = normed(f.table.weight[token], f.row_norm.weight)
        return [silu(g @ v) * float(u) for g, u in zip(f.gate.weight, row, strict=True)]

    torch.testing.assert_close(ffn(x, tokens), by_loop(ffn, x, tokens, middle))


def test_the_tokens_ffn_folds_into_a_table():
    """Each layer's output is the plain loop's function of the token's embedding, in any context."""
    model = build(ModelConfig(**SHAPE, ffn="token-ffn", replaced_layers=(1, 2)), seed=0)
    torch.nn.init.normal_(model.blocks[1].ffn_norm.weight, 1, 0.3)
    tokens, outputs = torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]]), {}
    for layer in (0, 1, 2):
        model.blocks[layer].ffn.register_forward_hook(lambda _, __, out, layer=layer: outputs.update({layer: out}))
    model(tokens)
    for layer in (1, 2):
        block = model.blocks[layer]
        for token in set(tokens.flatten().tolist()):
            e = normed(model.embedding.weight[token], block.ffn_norm.weight)
            middle = [
                silu(g @ e) * float(u @ e) for g, u in zip(block.ffn.gate.weight, block.ffn.up.weight, strict=True)
            ]
            row = block.ffn.down.weight @ torch.tensor(middle)
            for out in outputs[layer][tokens == token]:
                torch.testing.assert_close(out, row)
    assert not torch.allclose(outputs[0][0, 1], outputs[0][0, 2])  # the dense layer knows its context
