"""Controls against plain loops: what each takes away, and that nothing else is left."""

import math

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.ffn.up_removed import UpRemoved
from stemrepro.model.transformer import build
from tests.model.ffn.test_paper import by_loop, silu

SHAPE = {"vocab": 11, "width": 8, "layers": 3, "heads": 2, "kv_heads": 1, "ffn_width": 10}
CONFIG = ModelConfig(**SHAPE)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(2, 5, 8), torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]])


def test_up_removed_equals_a_plain_loop(inputs):
    x, tokens = inputs
    ffn = UpRemoved(CONFIG)
    torch.testing.assert_close(
        ffn(x, tokens), by_loop(ffn, x, tokens, lambda f, v, _: [silu(g @ v) for g in f.gate.weight])
    )


def test_up_removed_is_stem_with_rows_of_ones(inputs):
    removed, stem = UpRemoved(CONFIG), Stem(CONFIG)
    stem.gate, stem.down = removed.gate, removed.down
    torch.nn.init.ones_(stem.table.weight)
    torch.testing.assert_close(removed(*inputs), stem(*inputs))
    places = torch.tensor([0, 1]), torch.tensor([2, 4])
    torch.testing.assert_close(removed.gate_vectors(inputs[0], places), stem.gate_vectors(inputs[0], places))
    assert removed.up_vectors(*inputs, places) is None


def normed(row, gain):
    """RMSNorm of a list of numbers, from its definition."""
    root = math.sqrt(sum(float(v) ** 2 for v in row) / len(row) + 1e-5)
    return torch.tensor([float(v) / root * float(g) for v, g in zip(row, gain, strict=True)])


def test_the_tokens_ffn_folds_into_a_table():
    """Each layer's output is a function of the token alone, in any context: the plain loop's, of the token's embedding."""
    model = build(ModelConfig(**SHAPE, ffn="token-ffn", placed=(1, 2)), seed=0)
    torch.nn.init.normal_(model.blocks[1].ffn_norm.weight, 1, 0.3)
    tokens, found = torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]]), {}
    for layer in (0, 1, 2):
        model.blocks[layer].ffn.register_forward_hook(lambda _, __, out, layer=layer: found.update({layer: out}))
    model(tokens)
    for layer in (1, 2):
        block = model.blocks[layer]
        for token in set(tokens.flatten().tolist()):
            e = normed(model.embedding.weight[token], block.ffn_norm.weight)
            middle = [
                silu(g @ e) * float(u @ e) for g, u in zip(block.ffn.gate.weight, block.ffn.up.weight, strict=True)
            ]
            row = block.ffn.down.weight @ torch.tensor(middle)
            for out in found[layer][tokens == token]:
                torch.testing.assert_close(out, row)
    assert not torch.allclose(found[0][0, 1], found[0][0, 2])  # the dense layer knows its context


def test_the_tokens_ffn_has_denses_parameters():
    dense = build(ModelConfig(**SHAPE), seed=0).state_dict()
    other = build(ModelConfig(**SHAPE, ffn="token-ffn", placed=(1, 2)), seed=0).state_dict()
    assert dense.keys() == other.keys()
    assert all(torch.equal(dense[name], other[name]) for name in dense)
