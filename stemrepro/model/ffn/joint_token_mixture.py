import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn, matrix
from stemrepro.model.ffn.dense import SwiGLU


def direction(rows: Tensor) -> Tensor:
    """Return rows / (their Euclidean norm + epsilon): [..., width] -> [..., width]."""
    return rows / (torch.linalg.vector_norm(rows, dim=-1, keepdim=True) + 1e-6)


def parts(logits: Tensor) -> Tensor:
    """Return sigmoid(logits) / their sum: [..., n] -> [..., n], whose sum is 1."""
    score = logits.sigmoid()
    return score / score.sum(dim=-1, keepdim=True)


@ffn("joint-token-mixture", needs=("slots",))
class JointTokenMixture(SwiGLU):
    """JTok-M (arXiv 2602.00800, equations 10 to 13): a mixture of a token's rows is added to the update of the stream.

    With n = `slots` and K = `top_k`:

        g = R x                                                  [n]
        A = the places of the K largest of g
        w[i] = sigmoid(g[i]) / sum over j in A of sigmoid(g[j])
        e = sum over i in A of w[i] U[token, i]                  [width]
        y = SwiGLU(x) + s * e / (|e| + epsilon) / sqrt(2 layers)

    U is [vocab, n, width], s [width] and R [n, width], learnt in each layer; |.| is the Euclidean norm. Row
    `token x n + i` of the table is U[token, i]. The paper has n = 5 and K = 2. Other than JTok's, the row is added:
    nothing is multiplied. The equations are from two reading notes on the paper that agree; its text was not found.

    `load_balancing_loss` is that of the last forward pass (appendix B): n x sum over i of p[i] f[i], 1 when even. f[i]
    is row i's share of the choices. Its weight is the paper's, 1e-4.

    Other than in the paper, the router reads the stream after the attention: x is all that a network here sees. The
    paper's reads it before the attention, under a norm as well. And layer 0 can't have a table.
    Chosen, because the notes don't say: p[i] is the mean over tokens of sigmoid(g[i]) / sum of all
    sigmoid(g[j]).
    s starts at 1, R and U are drawn as other matrices and tables, and epsilon is 1e-6.
    """

    row_address = "router"
    load_balancing_weight = 1e-4

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.slots, self.share = config.slots, 1 / math.sqrt(2 * config.layers)
        self.top_k = self.rows_per_token = config.top_k
        self.router = matrix(config.width, config.slots)
        self.table = nn.Embedding(config.vocab * config.slots, config.width)
        self.scale = nn.Parameter(torch.ones(config.width))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        logits = self.router(x)
        best, slot = logits.topk(self.top_k, dim=-1)
        choices = F.one_hot(slot, self.slots).float().mean(dim=(0, 1, 2))
        chances = parts(logits).mean(dim=(0, 1))
        self.load_balancing_loss = self.slots * (choices * chances).sum()
        rows = self.table(tokens.unsqueeze(-1) * self.slots + slot)
        mixed = (parts(best).unsqueeze(-1) * rows).sum(dim=-2)
        return super().forward(x, tokens) + self.share * self.scale * direction(mixed)
