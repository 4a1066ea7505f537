from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import matrix
from stemrepro.model.ffn.joint_token_mixture import parts
from stemrepro.model.memory.base import Memory, memory


@memory("mome", needs=("memory_layers", "slots"))
class MixtureOfMemoryEmbeddings(Memory):
    """MoME: some of a token's rows, chosen by the stream, are added to the values (arXiv 2609.15126, section 3).

    For each value head i, with h the hidden state, M = `slots` and K = `top_k`:

        l[i] = W_g[i] h + b_g[i]                                                  [M]
        A[i] = the places of the K largest of l[i]
        alpha[i, a] = sigmoid(l[i, a]) / sum over b in A[i] of sigmoid(l[i, b])   if K > 1
        alpha[i, a] = softmax(l[i])[a], over all M                                if K = 1
        m[i] = sum over a in A[i] of alpha[i, a] U[token, a]                      [head_width]
        gamma = 2 sigmoid(W_gamma h + b_gamma)                                    one number per head
        v[i] = W_v[i] h + gamma[i] m[i]

    Value heads are what has keys and values of its own (kv_heads). Those of a layer share its table U [vocab, M,
    head_width], whose row `token x M + a` is U[token, a]. W_gamma and b_gamma start at 0, so that gamma is 1 (section
    3.5). Tokens are not grouped: f is the identity, as in most runs of the paper. It has no load-balancing loss.
    Its memories are in every other layer from layer 1 on (Table 11), here the placement `half`. K is 2 of M = the value
    heads, or of twice as many. Its tables have a rate of 0.1 or 0.2 and a decay of 0.001; an arm has settings for both.

    Chosen, because the paper doesn't say: h, "the hidden state entering the block", is under the attention's norm.
    W_v reads the same, so that both can be computed at once, as section 3.5 has it. Table 11 calls this router
    "hidden"; that of the Llama shapes is "value", without an equation. b_g starts at 0. W_g and U are drawn as other
    matrices and tables; where a table's size decides, it is that of all slots.
    """

    in_no_product = ("memory.slot_biases", "memory.gate_biases")
    starts: ClassVar[dict[str, float]] = {"slot_biases": 0.0, "gates": 0.0, "gate_biases": 0.0}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        places, heads = len(config.memory_layers), config.kv_heads
        self.slots, self.top_k, self.rows_per_token = config.slots, config.top_k, config.top_k * heads
        self.tables = nn.ModuleList(nn.Embedding(config.vocab * self.slots, config.head_width) for _ in range(places))
        self.routers = nn.ModuleList(matrix(config.width, heads * self.slots) for _ in range(places))
        self.slot_biases = nn.Parameter(torch.empty(places, heads, config.slots))
        self.gates = nn.Parameter(torch.empty(places, heads, config.width))
        self.gate_biases = nn.Parameter(torch.empty(places, heads, 1))

    def values(self, place: int, values: Tensor, x: Tensor, tokens: Tensor) -> Tensor:
        biases = self.slot_biases[place]
        logits = self.routers[place](x).unflatten(-1, biases.shape) + biases
        best, slot = logits.topk(self.top_k, dim=-1)
        share = parts(best) if self.top_k > 1 else logits.softmax(dim=-1).gather(-1, slot)
        rows = self.tables[place](tokens[..., None, None] * self.slots + slot)
        memory = (share.unsqueeze(-1) * rows).sum(dim=-2)
        gate = 2 * (F.linear(x, self.gates[place]).unsqueeze(-1) + self.gate_biases[place]).sigmoid()
        return values + (gate * memory).flatten(-2)
