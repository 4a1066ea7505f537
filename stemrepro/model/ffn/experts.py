"""Whole SwiGLU FFNs of which a token uses some."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.config import ModelConfig


class Experts(nn.Module):
    """`experts` SwiGLU FFNs: gate and up [experts, ffn_width, width], down [experts, width, ffn_width]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inward = (config.experts, config.ffn_width, config.width)
        self.gate, self.up = nn.Parameter(torch.empty(inward)), nn.Parameter(torch.empty(inward))
        self.down = nn.Parameter(torch.empty(config.experts, config.width, config.ffn_width))

    def forward(self, x: Tensor, expert: Tensor) -> Tensor:
        """Pass each input through its expert: x [n, width], expert [n] -> [n, width]. No input is dropped.

        training.compiling keeps it out of compiled graphs: the parts have other lengths in every batch.
        """
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=len(self.gate)).tolist()
        parts = [
            F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down)
            for part, gate, up, down in zip(torch.split(x[order], counts), self.gate, self.up, self.down, strict=True)
        ]
        out = torch.cat(parts)  # under autocast of another type than x
        return out.new_empty(x.shape).index_copy(0, order, out)
