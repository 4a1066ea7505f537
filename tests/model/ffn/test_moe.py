"""Mixtures against one expert at a time."""

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.ffn.experts import Experts
from stemrepro.model.ffn.hash_moe import HashMoE
from stemrepro.model.ffn.topk_moe import TopkMoE
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"vocab": 23}, experts=4, top_k=2)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(3, 7, 8), torch.randint(0, 23, (3, 7))


def filled(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return module


def alone(experts: Experts, number: int) -> SwiGLU:
    """One expert as a dense FFN."""
    ffn = SwiGLU(CONFIG)
    ffn.load_state_dict({f"{name}.weight": getattr(experts, name)[number] for name in ("gate", "up", "down")})
    return ffn


def test_hash_moe_sends_each_token_to_its_expert(inputs):
    x, tokens = inputs
    moe = filled(HashMoE(CONFIG))
    out = moe(x, tokens)
    for b in range(3):
        for t in range(7):
            expert = alone(moe.experts, int(moe.expert_of[tokens[b, t]]))
            torch.testing.assert_close(out[b, t], expert(x[b, t], None), atol=1e-5, rtol=1e-5)


def test_the_hash_is_balanced_and_the_same_everywhere():
    counts = torch.bincount(HashMoE(CONFIG).expert_of)
    assert counts.max() - counts.min() <= 1
    assert torch.equal(HashMoE(CONFIG).expert_of, HashMoE(CONFIG).expert_of)


def test_topk_mixes_the_best_experts(inputs):
    x, tokens = inputs
    moe = filled(TopkMoE(CONFIG))
    out = moe(x, tokens)
    choices = torch.zeros(4)
    means = torch.zeros(4)
    for b in range(3):
        for t in range(7):
            probability = torch.softmax(moe.router.weight @ x[b, t], dim=0)
            means += probability / 21
            best = sorted(range(4), key=lambda e: -float(probability[e]))[:2]
            expected = torch.zeros(8)
            for e in best:
                choices[e] += 1 / 42
                expected += probability[e] / sum(probability[i] for i in best) * alone(moe.experts, e)(x[b, t], None)
            torch.testing.assert_close(out[b, t], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moe.load_balancing_loss, 4 * (choices * means).sum())
