"""Engram against its demo's mathematics, written as loops over positions and channels."""

import math

import numpy as np
import pytest
import torch

from stemrepro.model.config import ModelConfig
from stemrepro.model.memory.engram import Engram, primes_from
from tests.model.shapes import SMALL

CONFIG = ModelConfig(**SMALL | {"layers": 4}, rank=3, memory="engram", memory_layers=(1, 3), memory_rows=30)
PRIMES = [
    [31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101],
    [103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181],
]
TOKENS = torch.tensor([[1, 3, 3, 0, 10, 1, 3, 5, 7, 9, 2, 2], [2, 1, 4, 3, 7, 10, 10, 10, 0, 1, 3, 3]])


@pytest.fixture
def memory():
    memory = Engram(CONFIG).double()
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(parameter)))
    return memory


def rms(numbers, gains):
    root = math.sqrt(sum(a * a for a in numbers) / len(numbers) + CONFIG.norm_eps)
    return [a / root * g for a, g in zip(numbers, gains.tolist(), strict=True)]


def product(matrix, numbers):
    return [sum(w * a for w, a in zip(row, numbers, strict=True)) for row in matrix.tolist()]


def sigmoid(a):
    return 1 / (1 + math.exp(-a))


def rows_of(layer, place, sequence):
    """List, for each position, each head's row in its own table, with whole numbers of any size."""
    odd = 2 * np.random.default_rng(10007 * layer).integers(0, (2**63 - 1) // 11 // 2, 3) + 1
    places = []
    for t in range(len(sequence)):
        last = [sequence[t - back] if t >= back else 0 for back in range(3)]
        a, b, c = (int(m) * token for m, token in zip(odd, last, strict=True))
        assert max(a, b, c) < 2**63
        places.append([((a ^ b) if head < 8 else (a ^ b ^ c)) % p for head, p in enumerate(PRIMES[place])])
    return places


def gated(memory, place, x, sequence, layer):
    """List v of each position."""
    values, table = [], memory.tables[place].weight
    for t, rows in enumerate(rows_of(layer, place, sequence)):
        read = []
        for head, row in enumerate(rows):
            read += table[sum(PRIMES[place][:head]) + row].tolist()
        key = rms(product(memory.key_maps[place].weight, read), memory.key_norms[place].weight)
        query = rms(x[t].tolist(), memory.query_norms[place].weight)
        score = sum(a * b for a, b in zip(key, query, strict=True)) / math.sqrt(8)
        root = math.copysign(math.sqrt(max(abs(score), 1e-6)), score)
        values.append([sigmoid(root) * a for a in product(memory.value_maps[place].weight, read)])
    return values


@pytest.mark.parametrize(("layer", "place"), [(1, 0), (3, 1)])
@torch.no_grad()
def test_the_stream_gets_the_demos_output(memory, layer, place):
    x = torch.randn(2, 12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    got = memory.before(place, x, TOKENS)
    for s in range(2):
        values = gated(memory, place, x[s], TOKENS[s].tolist(), layer)
        normed = [rms(v, memory.value_norms[place].weight) for v in values]
        for t in range(12):
            for d in range(8):
                taps = memory.kernels[place, d, 0].tolist()  # the last is of t itself
                total = sum(taps[3 - i] * normed[t - 3 * i][d] for i in range(4) if t >= 3 * i)
                expected = float(x[s, t, d]) + values[t][d] + total * sigmoid(total)
                assert float(got[s, t, d]) == pytest.approx(expected, abs=1e-5)


def test_scores_near_zero_keep_their_sign_and_have_a_gradient(memory):
    x = torch.full((1, 2, 8), 1e-12, dtype=torch.float64, requires_grad=True)
    memory.before(0, x, TOKENS[:1, :2]).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("start", "number"), [(0, 5), (2, 1), (4, 3), (53, 32), (90, 4)])
def test_primes_are_those_of_a_sieve(start, number):
    left, primes = set(range(2, 1000)), []
    while left:
        prime = min(left)
        primes.append(prime)
        left -= set(range(prime, 1000, prime))
    assert list(primes_from(start, number)) == [prime for prime in primes if prime >= start][:number]
