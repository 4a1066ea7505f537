"""The decoder against Hugging Face's Llama, its mask, and the paired initialisation."""

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.model import transformer
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import is_table
from stemrepro.model.transformer import _angles, build, document_mask, rotary_angles
from tests.model.test_loss import Largest

SHAPE = {"vocab": 61, "width": 32, "layers": 3, "heads": 4, "kv_heads": 2, "ffn_width": 40}
NAMES = {
    "embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj", "attention.out": "self_attn.o_proj",
    "ffn.gate": "mlp.gate_proj", "ffn.up": "mlp.up_proj", "ffn.down": "mlp.down_proj",
}  # fmt: skip


def llama_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, layer, part = name.split(".", 2)
    return f"model.layers.{layer}.{NAMES[part.removesuffix('.weight')]}.weight"


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_dense_logits_equal_llama(kv_heads):
    model = build(ModelConfig(**SHAPE | {"kv_heads": kv_heads}), seed=0)
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=kv_heads,
        intermediate_size=40, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, attention_bias=False,
    ))  # fmt: skip
    missing = llama.load_state_dict({llama_name(n): v for n, v in model.state_dict().items()}, strict=True)
    assert not missing.missing_keys
    tokens = torch.randint(0, 61, (2, 19), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(tokens), llama.eval()(tokens).logits, atol=1e-5, rtol=1e-5)


def test_arms_share_the_backbone_they_have_in_common():
    dense = build(ModelConfig(**SHAPE), seed=3).state_dict()
    stem = build(ModelConfig(**SHAPE, ffn="stem", replaced_layers=(1, 2)), seed=3).state_dict()
    shared = dense.keys() & stem.keys()
    assert len(dense.keys() - shared) == 2  # the up-projections of layers 1 and 2
    assert all(torch.equal(dense[name], stem[name]) for name in shared)
    other = build(ModelConfig(**SHAPE), seed=4).state_dict()
    assert not torch.equal(dense["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize(("init", "std"), [("xavier", (2 / (4000 + 64)) ** 0.5), ("normal", 1.0)])
def test_table_initialisation(init, std):
    config = ModelConfig(
        vocab=4000,
        width=16,
        layers=2,
        heads=2,
        kv_heads=1,
        ffn_width=64,
        ffn="stem",
        replaced_layers=(1,),
        table_init=init,
    )
    table = next(p for n, p in build(config, 0).named_parameters() if is_table(n))
    assert float(table.std()) == pytest.approx(std, rel=0.02)


def test_backbone_initialisation():
    config = ModelConfig(vocab=3000, width=64, layers=2, heads=2, kv_heads=1, ffn_width=256)
    weights = build(config, 0).state_dict()
    cut = 0.9866  # std of a standard normal cut at 3
    assert float(weights["embedding.weight"].std()) == pytest.approx(cut * 64**-0.5, rel=0.02)
    assert float(weights["blocks.1.ffn.down.weight"].std()) == pytest.approx(cut * 256**-0.5, rel=0.05)
    assert float(weights["blocks.0.attention.out.weight"].abs().max()) <= 3 * 64**-0.5


def test_no_token_sees_a_later_one():
    model = build(ModelConfig(**SHAPE, ffn="stem", replaced_layers=(1, 2)), seed=0)
    tokens = torch.arange(1, 13)[None]
    changed = tokens.clone()
    changed[0, 8] = 40
    torch.testing.assert_close(model(tokens)[:, :8], model(changed)[:, :8])


@pytest.mark.parametrize("long", [7, 8])
def test_document_mask_equals_separate_documents(long, monkeypatch):
    monkeypatch.setattr(transformer, "LONG", long)
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
        monkeypatch.setattr(transformer, "LONG", long)
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
