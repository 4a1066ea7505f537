import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn, matrix
from stemrepro.model.ffn.experts import Experts


@ffn("topk-moe", needs=("experts",), grows_by="experts")
class TopkMoE(FFN):
    """Learned router (Switch, Shazeer et al.): y = sum over the `top_k` best experts of p_e FFN_e(x).

    p = softmax(W_r x), renormalised over these experts. No capacity limit, nothing is dropped.
    `load_balancing_loss` is that of the last forward pass: experts x sum of (share of choices x mean probability),
    1 when even.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = matrix(config.width, config.experts)
        self.experts, self.top_k = Experts(config), config.top_k

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        probability = self.router(flat).softmax(dim=-1)
        weight, expert = probability.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        share = F.one_hot(expert, probability.shape[1]).float().mean(dim=(0, 1))
        self.load_balancing_loss = probability.shape[1] * (share * probability.mean(dim=0)).sum()
        outputs = self.experts(flat.repeat_interleave(self.top_k, dim=0), expert.flatten())
        return (outputs.unflatten(0, (-1, self.top_k)) * weight.unsqueeze(-1)).sum(dim=1).view_as(x)
