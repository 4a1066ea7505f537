"""Gemma 3n's per-layer embeddings against its lines, written as a loop."""

import math

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.per_layer_embeddings import PerLayerEmbeddings
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"layers": 4}, rank=3, memory="per-layer-embeddings", memory_layers=(1, 3))


def gelu(v):
    """Of one number, by tanh."""
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def normed(row, gain):
    """RMSNorm of a list of numbers, from its definition."""
    root = math.sqrt(sum(v * v for v in row) / len(row) + 1e-5)
    return [v / root * g for v, g in zip(row, gain, strict=True)]


def times(matrix, vector):
    return [sum(w * v for w, v in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize("place", [0, 1])
def test_a_layers_row_equals_a_plain_loop(place):
    torch.manual_seed(0)
    memory = PerLayerEmbeddings(CONFIG).double()
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter, 0.3, 1)
    x, embedded = torch.randn(2, 5, 8).double(), torch.randn(2, 5, 8).double()
    tokens = torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]])
    parts = {name: parameter.tolist() for name, parameter in memory.named_parameters()}
    got = memory.after(place, x, embedded, tokens)
    for b in range(2):
        for t in range(5):
            row = [v * math.sqrt(3) for v in parts[f"tables.{place}.weight"][tokens[b, t]]]
            projected = normed(
                times(parts[f"projections.{place}.weight"], embedded[b, t].tolist()), parts["projection_norm.weight"]
            )
            given = [(r + p) / math.sqrt(2) for r, p in zip(row, projected, strict=True)]
            gate = [gelu(v) for v in times(parts[f"gates.{place}.weight"], x[b, t].tolist())]
            out = times(parts[f"outs.{place}.weight"], [g * p for g, p in zip(gate, given, strict=True)])
            added = normed(out, parts[f"out_norms.{place}.weight"])
            for channel in range(8):
                assert got[b, t, channel].item() == pytest.approx(x[b, t, channel].item() + added[channel], abs=1e-5)
