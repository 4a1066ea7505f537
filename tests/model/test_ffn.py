"""STEM's FFN against a plain loop, against the dense FFN it replaces, and its gradients."""

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn import FFNS, Stem, SwiGLU, TokenOnly

CONFIG = ModelConfig(vocab=11, width=8, layers=2, heads=2, kv_heads=1, ffn_width=10)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(2, 5, 8), torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]])


def test_stem_equals_a_plain_loop(inputs):
    x, tokens = inputs
    ffn = Stem(CONFIG)
    expected = torch.zeros_like(x)
    for b in range(2):
        for t in range(5):
            gate = ffn.gate.weight @ x[b, t]
            middle = [float(g) / (1 + float(torch.exp(-g))) * float(u) for g, u in zip(gate, ffn.table.weight[tokens[b, t]], strict=True)]  # fmt: skip
            expected[b, t] = ffn.down.weight @ torch.tensor(middle)
    torch.testing.assert_close(ffn(x, tokens), expected)


def test_a_table_that_holds_the_up_projection_gives_the_dense_output():
    """Where a token's input is always the same, row W_u x makes STEM the dense FFN."""
    torch.manual_seed(1)
    dense, stem = SwiGLU(CONFIG), Stem(CONFIG)
    tokens = torch.tensor([[1, 3, 3, 0, 10]])
    x = torch.randn(11, 8)[tokens]
    stem.gate, stem.down = dense.gate, dense.down
    with torch.no_grad():
        for place, token in enumerate(tokens[0]):
            stem.table.weight[token] = dense.up.weight @ x[0, place]
    torch.testing.assert_close(stem(x, tokens), dense(x, tokens))


def test_token_only_ignores_the_context(inputs):
    x, tokens = inputs
    ffn = TokenOnly(CONFIG)
    out = ffn(x, tokens)
    torch.testing.assert_close(out, ffn(torch.randn_like(x), tokens))
    torch.testing.assert_close(out[0, 1], ffn.down.weight @ ffn.table.weight[3])


@pytest.mark.parametrize("kind", [Stem, TokenOnly])
def test_only_rows_of_seen_tokens_get_gradients(inputs, kind):
    x, tokens = inputs
    ffn = kind(CONFIG)
    ffn(x, tokens).square().sum().backward()
    touched = ffn.table.weight.grad.abs().sum(dim=1) > 0
    assert set(touched.nonzero().flatten().tolist()) == set(tokens.flatten().tolist())


@pytest.mark.parametrize("name", FFNS)
def test_every_ffn_keeps_the_shape(name, inputs):
    assert FFNS[name](CONFIG)(*inputs).shape == inputs[0].shape
