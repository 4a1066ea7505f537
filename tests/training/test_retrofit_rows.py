"""Rows of a retrofit against a plain loop, and models in which a row loses nothing."""

from dataclasses import replace

import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.model.block import context_of
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import Decoder, build
from stemrepro.training.retrofit_rows import read_means, retrofitted

SHAPE = {"vocab": 23, "width": 16, "layers": 4, "heads": 2, "kv_heads": 1, "ffn_width": 20}
DENSE, REPLACED = ModelConfig(**SHAPE), (1, 3)
STEM = ModelConfig(**SHAPE, ffn="stem", replaced_layers=REPLACED)
SEEN = 17
"""Tokens 17 to 22 are in no text."""


def drawn(count, top=SEEN):
    return [torch.randint(0, top, (3, 11), generator=torch.Generator().manual_seed(k)) for k in range(count)]


def noisy(config):
    """A model whose norms aren't the ones that it starts with."""
    model, noise = build(config, 0).eval(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=noise))
    return model


def loaded(state):
    model = Decoder(STEM).eval()
    model.load_state_dict(state)
    return model


@torch.no_grad()
def inputs_of(model, layer, tokens):
    """What a layer's network reads of one sequence, the blocks written out."""
    x = model.embedding(tokens[None])
    context = context_of(model.config, tokens[None], x)
    for block in model.blocks[:layer]:
        x = block(x, context)
    block = model.blocks[layer]
    x = x + block.attention(block.attention_norm(x), context)
    scale = (x.double().square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt()
    return (x.double() * scale * block.ffn_norm.weight.double())[0]


@pytest.mark.parametrize("kind", ["token-means", "mean-row"])
def test_rows_are_those_of_a_plain_loop(kind):
    model, text = noisy(DENSE), drawn(4)
    state = retrofitted(model, STEM, text, kind)
    for layer in REPLACED:
        of_token, every = {}, []
        for batch in text:
            for tokens in batch:
                for token, x in zip(tokens.tolist(), inputs_of(model, layer, tokens), strict=True):
                    of_token.setdefault(token, []).append(x)
                    every.append(x)
        overall, up = sum(every) / len(every), model.blocks[layer].ffn.up.weight.double()
        assert len(of_token) == SEEN
        for token, row in enumerate(state[f"blocks.{layer}.ffn.table.weight"]):
            inputs = of_token.get(token) if kind == "token-means" else None
            expected = up @ (sum(inputs) / len(inputs) if inputs else overall)
            torch.testing.assert_close(row.double(), expected, atol=2e-6, rtol=2e-6)


def test_all_but_the_up_projections_stays():
    model = noisy(DENSE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = retrofitted(model, STEM, drawn(1), "token-means")
    assert before.keys() - state.keys() == {f"blocks.{layer}.ffn.up.weight" for layer in REPLACED}
    assert all(torch.equal(state[name], before[name]) for name in before.keys() & state.keys())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(block.ffn._forward_pre_hooks for block in model.blocks)


def test_where_the_token_decides_alone_nothing_is_lost():
    """Without attention a layer's input depends on the token alone, and a row is what the up-projection gives."""
    model = noisy(DENSE)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.out.weight.zero_()
    tokens = drawn(9)[-1]
    with torch.no_grad():
        expected = model(tokens)
        torch.testing.assert_close(loaded(retrofitted(model, STEM, drawn(4), "token-means"))(tokens), expected)
        control = loaded(retrofitted(model, STEM, drawn(4), "mean-row"))(tokens)
    assert (control - expected).abs().max() > 0.1


def test_what_can_not_be_retrofitted_is_named():
    model = noisy(DENSE)
    with pytest.raises(UserError, match="ffn 'token-only' can't be retrofitted"):
        retrofitted(model, ModelConfig(**SHAPE, ffn="token-only", replaced_layers=REPLACED), drawn(1), "token-means")
    with pytest.raises(UserError, match="'stem' with a shared table can't be retrofitted"):
        retrofitted(model, replace(STEM, table_shared=True), drawn(1), "mean-row")
    with pytest.raises(UserError, match="no layer is to have a table"):
        retrofitted(model, ModelConfig(**SHAPE, ffn="stem"), drawn(1), "token-means")
    wider = ModelConfig(**SHAPE | {"ffn_width": 24}, ffn="stem", replaced_layers=REPLACED)
    with pytest.raises(UserError, match="a dense model of the same shape"):
        retrofitted(model, wider, drawn(1), "token-means")
    with pytest.raises(UserError, match="a dense model of the same shape"):
        retrofitted(noisy(STEM), STEM, drawn(1), "token-means")
    with pytest.raises(UserError, match="has no token"):
        read_means(model, REPLACED, [], "mean-row")
