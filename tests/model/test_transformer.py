"""The decoder against Hugging Face's Llama, its mask, and the paired initialisation."""

import math

import pytest
import torch

from stemrepro.model import block
from stemrepro.model.block import _angles, document_mask, rotary_angles
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import is_table
from stemrepro.model.transformer import build
from tests.model.test_loss import Largest

SHAPE = {"vocab": 61, "width": 32, "layers": 3, "heads": 4, "kv_heads": 2, "ffn_width": 40}


@pytest.mark.parametrize(("init", "std"), [("xavier", (2 / (4000 + 64)) ** 0.5), ("normal", 1.0)])
def test_table_initialisation(init, std):
    shape = {"vocab": 4000, "width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "ffn_width": 64}
    config = ModelConfig(**shape, ffn="stem", replaced_layers=(1,), table_init=init)
    table = next(p for n, p in build(config, 0).named_parameters() if is_table(n))
    assert float(table.std()) == pytest.approx(std, rel=0.02)


def test_backbone_initialisation():
    config = ModelConfig(vocab=3000, width=64, layers=2, heads=2, kv_heads=1, ffn_width=256)
    weights = build(config, 0).state_dict()
    cut = 0.9866  # std of a standard normal cut at 3
    assert float(weights["embedding.weight"].std()) == pytest.approx(cut * 64**-0.5, rel=0.02)
    assert float(weights["blocks.1.ffn.down.weight"].std()) == pytest.approx(cut * 256**-0.5, rel=0.05)
    assert float(weights["blocks.0.attention.out.weight"].abs().max()) <= 3 * 64**-0.5


@pytest.mark.parametrize("long", [7, 8])
def test_document_mask_equals_separate_documents(long, monkeypatch):
    monkeypatch.setattr(block, "LONG", long)
    model = build(ModelConfig(**SHAPE, document_mask=True), seed=0)
    first, second = torch.tensor([[5, 6, 7, 0]]), torch.tensor([[8, 9, 10]])
    together = model(torch.cat([first, second], dim=1))
    torch.testing.assert_close(together[:, :4], model(first), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(together[:, 4:], model(second), atol=1e-5, rtol=1e-4)
    allowed = [[True, False, False], [True, True, False], [False, False, True]]
    assert document_mask(torch.tensor([[1, 0, 2]]))[0, 0].tolist() == allowed


def test_long_sequences_attend_document_by_document(monkeypatch):
    """Losses and gradients are those of the mask, which isn't made; a sequence's end ends its last document."""
    model = build(ModelConfig(**SHAPE, document_mask=True, value_layers=(1,)), seed=0)
    tokens = torch.randint(1, 61, (3, 51), generator=torch.Generator().manual_seed(0))
    tokens[0, [0, 7, 8, 30]] = tokens[1, 49] = 0
    found = []
    for long in (51, 50):
        monkeypatch.setattr(block, "LONG", long)
        with Largest() as largest:
            losses = model.losses(tokens[:, :-1], tokens[:, 1:], at_once=12)
            gradients = torch.autograd.grad(losses.square().sum(), list(model.parameters()))
        assert (largest.elements >= 3 * 50 * 50) == (long == 51)
        found.append((losses, *gradients))
    for whole, apart in zip(*found, strict=True):
        torch.testing.assert_close(apart, whole, atol=1e-4, rtol=1e-4)


def test_rotary_positions_are_made_once_and_can_be_trained_with():
    """Angles that were first made while scoring in inference mode must not poison training."""
    _angles.cache_clear()
    model, tokens = build(ModelConfig(**SHAPE), seed=0), torch.randint(0, 61, (1, 7))
    with torch.inference_mode():
        model(tokens)
    model(tokens).sum().backward()
    assert _angles.cache_info().misses == 1
    cos, sin = rotary_angles(7, 8, 10000.0, torch.device("cpu"))
    for position in range(7):
        for place in range(8):
            angle = position / 10000 ** (2 * (place % 4) / 8)
            assert float(cos[position, place]) == pytest.approx(math.cos(angle), abs=1e-6)
            assert float(sin[position, place]) == pytest.approx(math.sin(angle), abs=1e-6)
