import math
from functools import cache
from itertools import count, islice
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.ffn.base import matrix
from stemrepro.model.memory.base import Memory, memory

ORDERS = (2, 3)
"""Tokens of an n-gram, as in the demo and the paper."""
HEADS = 8
"""Hash heads for each n, as in the demo and the paper."""
KERNEL = 4
"""Tokens that the convolution takes in, as in the demo and the paper."""
DILATION = max(ORDERS)
"""Distance between the tokens that the convolution takes in, as in the demo and the paper."""
FLOOR = 1e-6
"""Least size of a score under the square root, as in the demo."""


@cache
def primes_from(start: int, number: int) -> tuple[int, ...]:
    """Return the first primes that are `start` or more: (4, 3) -> (5, 7, 11)."""
    return tuple(islice((n for n in count(max(2, start)) if all(n % d for d in range(2, math.isqrt(n) + 1))), number))


@memory("engram", needs=("memory_layers", "memory_rows", "rank"))
class Engram(Memory):
    """Engram: hashed n-grams, gated by the stream, before the attention of some layers (arXiv 2601.07372, section 2).

    The code followed is engram_demo_v1.py of the repository deepseek-ai/Engram. The stream x becomes x + y. At position
    t, where rms is an RMSNorm with a gain, and each has its own:

        z[n, k] = (c[0] token[t] xor ... xor c[n-1] token[t-n+1]) mod p[n, k]       n = 2, 3 and k = 1 to 8
        e = the rows U[n, k][z[n, k]], one after another                            [16 rank]
        s = rms(W_k e) . rms(x) / sqrt(width)
        v = sigmoid(sign(s) sqrt(max(|s|, 1e-6))) W_v e                             [width]
        y = SiLU(C * rms(v)) + v

    C is a depthwise causal convolution without bias, of v at t, t - 3, t - 6 and t - 9. It starts at 0 (section 4.1).
    The c are random odd numbers of each layer, so small that no product overflows. The p are primes, all different,
    from `memory_rows` on: each head of each layer has a table of its own, U[n, k] [p, rank]. A layer's tables lie in
    one nn.Embedding, one after another. END_OF_DOCUMENT comes before the first token. As in the demo, n-grams and the
    convolution go across documents.

    The square root is the demo's; equation 4 of the paper has none. W_k and W_v have no bias, as in equation 3; the
    demo's have. Other than in the source, there is one stream, without hyper-connections. Nor are ids compressed: the
    source first joins tokens whose text is equal in lower case and by NFKC, but a model here has no tokenizer.
    The source's tables have five times the rate and no decay (section 4.1); an arm has settings for both.

    Chosen, because the source doesn't say: tables and matrices are drawn as others are here.
    """

    starts: ClassVar[dict[str, float]] = {"kernels": 0.0}
    looks_back = True
    rows_per_token = len(ORDERS) * HEADS
    sizes: Tensor
    offsets: Tensor
    factors: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, places, heads = config.width, len(config.memory_layers), len(ORDERS) * HEADS
        primes = primes_from(config.memory_rows, places * heads)
        sizes = [primes[place * heads : (place + 1) * heads] for place in range(places)]
        offsets = [[sum(own[:head]) for head in range(heads)] for own in sizes]
        most = np.iinfo(np.int64).max // config.vocab // 2
        drawn = [np.random.default_rng(10007 * n).integers(most, size=max(ORDERS)) for n in config.memory_layers]
        self.register_buffer("sizes", torch.tensor(sizes).view(places, len(ORDERS), HEADS), persistent=False)
        self.register_buffer("offsets", torch.tensor(offsets), persistent=False)
        self.register_buffer("factors", torch.tensor([(2 * own + 1).tolist() for own in drawn]), persistent=False)
        self.tables = nn.ModuleList(nn.Embedding(sum(own), config.rank) for own in sizes)
        self.key_maps = nn.ModuleList(matrix(heads * config.rank, width) for _ in range(places))
        self.value_maps = nn.ModuleList(matrix(heads * config.rank, width) for _ in range(places))
        self.key_norms = nn.ModuleList(nn.RMSNorm(width, config.norm_eps) for _ in range(places))
        self.query_norms = nn.ModuleList(nn.RMSNorm(width, config.norm_eps) for _ in range(places))
        self.value_norms = nn.ModuleList(nn.RMSNorm(width, config.norm_eps) for _ in range(places))
        self.kernels = nn.Parameter(torch.empty(places, width, 1, KERNEL))

    def addresses(self, place: int, tokens: Tensor) -> Tensor:
        """Return the rows of the place's table, which has its heads' tables one after another: [B, T] -> [B, T, 16]."""
        factors, before, rows = self.factors[place], tokens, []
        mixed = tokens * factors[0]
        for n, sizes in zip(ORDERS, self.sizes[place], strict=True):
            before = F.pad(before, (1, 0), value=END_OF_DOCUMENT)[:, :-1]
            mixed = mixed ^ before * factors[n - 1]
            rows.append(mixed.unsqueeze(-1) % sizes)
        return torch.cat(rows, dim=-1) + self.offsets[place]

    def convolved(self, place: int, values: Tensor) -> Tensor:
        """Return SiLU(C * rms(v)): [B, T, D] -> [B, T, D]."""
        normed = self.value_norms[place](values).transpose(1, 2)
        padded = F.pad(normed, (DILATION * (KERNEL - 1), 0))
        mixed = F.conv1d(padded, self.kernels[place], dilation=DILATION, groups=normed.shape[1])
        return F.silu(mixed).transpose(1, 2)

    def before(self, place: int, x: Tensor, tokens: Tensor) -> Tensor:
        rows = self.tables[place](self.addresses(place, tokens)).flatten(2)
        key, query = self.key_norms[place](self.key_maps[place](rows)), self.query_norms[place](x)
        score = (key * query).sum(dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
        gate = (score.sign() * score.abs().clamp_min(FLOOR).sqrt()).sigmoid()
        values = gate * self.value_maps[place](rows)
        return x + values + self.convolved(place, values)
