"""The paper's other networks against plain loops; tests/model/test_official.py has STEM's and the dense one's."""

import math

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.blend import Blend
from stemrepro.model.ffn.down_replaced import DownReplaced
from stemrepro.model.ffn.gate_replaced import GateReplaced
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.ffn.stem_dagger import StemDagger
from stemrepro.model.ffn.stem_shuffled import StemShuffled
from stemrepro.model.ffn.token_only import TokenOnly
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL, rank=3, experts=4, top_k=2, slots=3)


def silu(v):
    """Of one number, from its definition."""
    return float(v) / (1 + math.exp(-float(v)))


def test_token_only_ignores_the_context(inputs):
    x, tokens = inputs
    ffn = TokenOnly(CONFIG)
    out = ffn(x, tokens)
    torch.testing.assert_close(out, ffn(torch.randn_like(x), tokens))
    torch.testing.assert_close(out[0, 1], ffn.down.weight @ ffn.table.weight[3])


def by_loop(ffn, x, tokens, middle):
    """y = W_d m, where middle(ffn, x [width], token) gives m as a list."""
    expected = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            expected[b, t] = ffn.down.weight @ torch.tensor(middle(ffn, x[b, t], int(tokens[b, t])))
    return expected


MIDDLES = {
    GateReplaced: lambda f, x, t: [silu(u) * float(w @ x) for u, w in zip(f.table.weight[t], f.up.weight, strict=True)],
    StemDagger: lambda f, x, t: [
        silu(g @ x) * (float(w @ x) + float(u))
        for g, w, u in zip(f.gate.weight, f.up.weight, f.table.weight[t], strict=True)
    ],
    Blend: lambda f, x, t: [
        silu(g @ x) * (float(w @ x) + math.exp(-float(f.mix)) * float(u)) / (1 + math.exp(-float(f.mix)))
        for g, w, u in zip(f.gate.weight, f.up.weight, f.table.weight[t], strict=True)
    ],
}


@pytest.mark.parametrize("kind", MIDDLES)
def test_variants_equal_plain_loops(kind, inputs):
    x, tokens = inputs
    ffn = kind(CONFIG)
    if kind is Blend:
        torch.nn.init.constant_(ffn.mix, 0.7)
    torch.testing.assert_close(ffn(x, tokens), by_loop(ffn, x, tokens, MIDDLES[kind]))


def test_down_replaced_is_a_row_of_the_residuals_width(inputs):
    x, tokens = inputs
    ffn = DownReplaced(CONFIG)
    assert torch.equal(ffn(x, tokens)[1, 4], ffn.table.weight[7])
    assert [name for name, _ in ffn.named_parameters()] == ["table.weight"]


def test_shuffled_rows_are_stem_with_other_tokens(inputs):
    x, tokens = inputs
    shuffled = StemShuffled(CONFIG)
    stem = Stem(CONFIG)
    stem.load_state_dict({name: value for name, value in shuffled.state_dict().items() if name != "order"})
    assert torch.equal(shuffled(x, tokens), stem(x, tokens))
    shuffled.order.copy_(torch.randperm(11, generator=torch.Generator().manual_seed(3)))
    torch.testing.assert_close(shuffled(x, tokens), stem(x, shuffled.order[tokens]))
