"""Mixtures of experts: whole SwiGLU FFNs of which a token uses some. Same signature as every FFN."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn import matrix


class Experts(nn.Module):
    """`experts` SwiGLU FFNs: gate and up [experts, ffn_width, width], down [experts, width, ffn_width]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inward = (config.experts, config.ffn_width, config.width)
        self.gate, self.up = nn.Parameter(torch.empty(inward)), nn.Parameter(torch.empty(inward))
        self.down = nn.Parameter(torch.empty(config.experts, config.width, config.ffn_width))

    def forward(self, x: Tensor, expert: Tensor) -> Tensor:
        """Each input through its expert: x [n, width], expert [n] -> [n, width]. No input is dropped."""
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=len(self.gate)).tolist()
        parts = [
            F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down)
            for part, gate, up, down in zip(x[order].split(counts), self.gate, self.up, self.down, strict=True)
        ]
        return torch.empty_like(x).index_copy(0, order, torch.cat(parts))


class HashMoE(nn.Module):
    """Hash Layers (Roller et al. 2021), the paper's only mixture: y = FFN_h(token)(x), one expert a token by a fixed, balanced
    assignment of the vocabulary."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.experts = Experts(config)
        order = torch.randperm(config.vocab, generator=torch.Generator().manual_seed(0))
        self.register_buffer("expert_of", order % config.experts, persistent=False)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.experts(x.flatten(0, 1), self.expert_of[tokens.flatten()]).view_as(x)


class TopkMoE(nn.Module):
    """Learned router (Switch, Shazeer et al.): y = sum over the `chosen` best experts of p_e FFN_e(x), p = softmax(W_r x)
    renormalised over them. No capacity limit, nothing is dropped.

    `balance` holds the load-balancing loss of the last forward pass: experts x sum of (share of choices x mean probability),
    1 when even; training adds it with the weight of stemrepro.training.module.BALANCE.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = matrix(config.width, config.experts)
        self.experts, self.chosen = Experts(config), config.chosen
        self.balance: Tensor | None = None

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [batch, seq, width], tokens [batch, seq] (unused) -> [batch, seq, width]."""
        flat = x.flatten(0, 1)
        probability = self.router(flat).softmax(dim=-1)
        weight, expert = probability.topk(self.chosen, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        share = F.one_hot(expert, probability.shape[1]).float().mean(dim=(0, 1))
        self.balance = probability.shape[1] * (share * probability.mean(dim=0)).sum()
        found = self.experts(flat.repeat_interleave(self.chosen, dim=0), expert.flatten())
        return (found.unflatten(0, (-1, self.chosen)) * weight.unsqueeze(-1)).sum(dim=1).view_as(x)
