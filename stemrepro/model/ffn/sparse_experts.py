from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn, matrix
from stemrepro.model.ffn.dense import SwiGLU
from stemrepro.model.ffn.experts import Experts

SPEED = 0.001
"""Step of the bias: the best in arXiv 2408.15664, and DeepSeek-V3's until the last 500B of its tokens."""


@ffn("sparse-experts", needs=("experts",), grows_by="experts", fewest=2)
class SparseExperts(FFN):
    """DeepSeek-V3's mixture: y = FFN_shared(x) + sum over the `top_k` chosen experts of g_e FFN_e(x).

    The scores are s = sigmoid(W_r x), the weights g_e = s_e / (sum of the chosen s). The experts of the largest s + b
    are chosen (arXiv 2412.19437, equations 12 to 16). b only chooses, and isn't trained: after each step b_e grows by
    SPEED x sign(mean load - load of e). A load is the number of tokens that chose e (arXiv 2408.15664, algorithm 1).
    No loss balances, and no token is dropped. top_k is 2 or more: of one expert g is 1, and W_r would learn nothing.

    Each expert is ffn_width / (top_k + 1) wide, rounded up. Chosen, because a token then uses as much as in the dense
    FFN. So it is in DeepSeek-V3: 8 and 1 shared expert of 2,048 channels, dense layers of 18,432.
    Left out are groups of experts by device, the small loss within sequences, and the factor 2.5 of the released code,
    which the equations don't have.

    `load` counts the choices of the step's micro-batches so far, all ranks' together once the next step begins. It is
    saved, so that a resumed run goes on to the bit. Of several ranks only the first one's is: the first update after
    a resume then goes by its tokens alone. The last step's counts move no bias.
    """

    bias: Tensor
    load: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        narrow = replace(config, ffn_width=-(-config.ffn_width // (config.top_k + 1)))
        self.router = matrix(config.width, config.experts)
        self.experts, self.shared, self.top_k = Experts(narrow), SwiGLU(narrow), config.top_k
        self.register_buffer("bias", torch.zeros(config.experts))
        self.register_buffer("load", torch.zeros(config.experts, dtype=torch.long))
        self.stream = ""

    def start_step(self, stream: str) -> None:
        """Move the bias by the step before, unless it is another micro-batch of this step."""
        if stream == self.stream:
            return
        self.stream = stream
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.load)
        self.bias += SPEED * (self.load.sum() - len(self.load) * self.load).sign()
        self.load.zero_()

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        score = self.router(flat).float().sigmoid()
        expert = (score + self.bias).topk(self.top_k, dim=-1).indices
        if self.training and torch.is_grad_enabled():  # validation within a run has no gradients
            self.load += F.one_hot(expert, score.shape[1]).sum(dim=(0, 1))
        weight = score.gather(1, expert)
        weight = (weight / weight.sum(dim=-1, keepdim=True)).unsqueeze(-1)
        outputs = self.experts(flat.repeat_interleave(self.top_k, dim=0), expert.flatten())
        routed = (outputs.unflatten(0, (-1, self.top_k)) * weight).sum(dim=1).view_as(x)
        return self.shared(x, tokens) + routed
