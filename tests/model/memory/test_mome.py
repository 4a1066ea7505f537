"""MoME against the paper's equations, written as loops over positions, heads and channels."""

import math
from dataclasses import replace

import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.mome import MixtureOfMemoryEmbeddings
from tests.model.shapes import SMALL

SHAPE = SMALL | {"width": 12, "layers": 4, "heads": 6, "kv_heads": 3}
CONFIG = ModelConfig(**SHAPE, slots=5, top_k=2, memory="mome", memory_layers=(1, 3))
TOKENS = torch.tensor([[1, 3, 3, 0, 10], [2, 1, 4, 3, 7]])


def drawn(top_k):
    memory = MixtureOfMemoryEmbeddings(replace(CONFIG, top_k=top_k)).double()
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(parameter)))
    return memory


def dot(row, numbers):
    return sum(a * b for a, b in zip(row.tolist(), numbers, strict=True))


def sigmoid(a):
    return 1 / (1 + math.exp(-a))


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("place", [0, 1])
@torch.no_grad()
def test_values_get_the_papers_mixture(top_k, place):
    memory, generator = drawn(top_k), torch.Generator().manual_seed(5)
    x = torch.randn(2, 5, 12, dtype=torch.float64, generator=generator)
    values = torch.randn(2, 5, 6, dtype=torch.float64, generator=generator)
    got, choices = memory.values(place, values, x, TOKENS), set()
    router, table = memory.routers[place].weight, memory.tables[place].weight
    for s in range(2):
        for t in range(5):
            h = x[s, t].tolist()
            for i in range(3):
                logits = [dot(router[5 * i + a], h) + float(memory.slot_biases[place, i, a]) for a in range(5)]
                best = sorted(range(5), key=lambda a: -logits[a])[:top_k]
                choices.add((s, t, *sorted(best)))
                if top_k == 1:
                    share = {a: math.exp(logits[a]) / sum(map(math.exp, logits)) for a in best}
                else:
                    share = {a: sigmoid(logits[a]) / sum(sigmoid(logits[b]) for b in best) for a in best}
                gate = 2 * sigmoid(dot(memory.gates[place, i], h) + float(memory.gate_biases[place, i, 0]))
                for d in range(2):
                    mixed = sum(share[a] * float(table[5 * int(TOKENS[s, t]) + a, d]) for a in best)
                    expected = float(values[s, t, 2 * i + d]) + gate * mixed
                    assert float(got[s, t, 2 * i + d]) == pytest.approx(expected, abs=1e-5)
    assert len(choices) > 10  # heads of a token choose by themselves
