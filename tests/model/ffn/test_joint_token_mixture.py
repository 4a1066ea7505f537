"""JTok-M against its equations, written as loops over positions and channels."""

import math
from dataclasses import replace

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.ffn.joint_token_mixture import JointTokenMixture
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"layers": 6}, slots=5, top_k=2, ffn="joint-token-mixture", replaced_layers=(1, 4))
TOKENS = torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]])


def drawn(top_k):
    torch.manual_seed(0)
    ffn = JointTokenMixture(replace(CONFIG, top_k=top_k)).double()
    torch.nn.init.normal_(ffn.scale, 0.5, 1)
    torch.nn.init.normal_(ffn.router.weight)
    return ffn, torch.randn(2, 5, 8, dtype=torch.float64)


def sigmoid(a):
    return 1 / (1 + math.exp(-a))


@pytest.mark.parametrize("top_k", [1, 2, 3])
@torch.no_grad()
def test_the_mixed_row_is_added_to_the_update_and_choices_are_balanced(top_k):
    ffn, x = drawn(top_k)
    update, got = SwiGLU.forward(ffn, x, TOKENS), ffn(x, TOKENS)
    shares, chances = [0.0] * 5, [0.0] * 5
    for s in range(2):
        for t in range(5):
            logits = [
                sum(r * a for r, a in zip(row, x[s, t].tolist(), strict=True)) for row in ffn.router.weight.tolist()
            ]
            best = sorted(range(5), key=lambda i: -logits[i])[:top_k]
            weight = {i: sigmoid(logits[i]) / sum(sigmoid(logits[j]) for j in best) for i in best}
            for i in range(5):
                shares[i] += (i in best) / (10 * top_k)
                chances[i] += sigmoid(logits[i]) / sum(map(sigmoid, logits)) / 10
            rows = {i: ffn.table.weight[5 * int(TOKENS[s, t]) + i].tolist() for i in best}
            mixed = [sum(weight[i] * rows[i][d] for i in best) for d in range(8)]
            length = math.sqrt(sum(e * e for e in mixed)) + 1e-6
            for d in range(8):
                added = float(ffn.scale[d]) * mixed[d] / length / math.sqrt(12)  # 6 layers
                assert float(got[s, t, d]) == pytest.approx(float(update[s, t, d]) + added, abs=1e-5)
    expected = 5 * sum(f * p for f, p in zip(shares, chances, strict=True))
    assert float(ffn.load_balancing_loss) == pytest.approx(expected, abs=1e-5)


def test_output_and_balance_train_the_router():
    for part in range(2):
        ffn, x = drawn(2)
        (ffn(x, TOKENS).square().sum(), ffn.load_balancing_loss)[part].backward()
        assert ffn.router.weight.grad.any()
