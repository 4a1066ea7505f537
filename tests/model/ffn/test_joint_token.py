"""JTok against its equation, written as loops over positions and channels."""

import math
from dataclasses import replace

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.ffn.joint_token import JointToken, direction
from stemrepro.model.ffn.jtok import JTok
from stemrepro.model.transformer import build

CONFIG = ModelConfig(vocab=11, width=8, layers=2, heads=2, kv_heads=1, ffn_width=10)
TOKENS = torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]])


@pytest.fixture
def ffn():
    torch.manual_seed(0)
    ffn = JointToken(CONFIG).double()
    torch.nn.init.normal_(ffn.scale, 0.5, 1)
    return ffn


@torch.no_grad()
def test_the_row_scales_the_update_channel_by_channel(ffn):
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    update, got = SwiGLU.forward(ffn, x, TOKENS), ffn(x, TOKENS)
    for s in range(2):
        for t in range(5):
            row = ffn.table.weight[TOKENS[s, t]].tolist()
            length = math.sqrt(sum(u * u for u in row)) + 1e-6
            for d in range(8):
                expected = float(update[s, t, d]) * (1 + float(ffn.scale[d]) * row[d] / length)
                assert float(got[s, t, d]) == pytest.approx(expected, abs=1e-5)


def test_a_short_row_is_shortened_by_epsilon():
    torch.testing.assert_close(direction(torch.tensor([[3e-6, 4e-6], [0, 0]])), torch.tensor([[0.5, 2 / 3], [0, 0]]))


def test_it_is_the_simplified_network_where_rows_are_long(ffn):
    other, x = JTok(CONFIG).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    other.load_state_dict(ffn.state_dict())
    torch.testing.assert_close(ffn(x, TOKENS), other(x, TOKENS), atol=1e-5, rtol=1e-5)


def test_its_scale_starts_at_one():
    model = build(replace(CONFIG, ffn="joint-token", replaced_layers=(1,)), seed=0)
    assert model.blocks[1].ffn.scale.tolist() == [1.0] * 8
