import torch
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn
from stemrepro.model.ffn.experts import Experts


@ffn("hash-moe", needs=("experts",), grows_by="experts")
class HashMoE(FFN):
    """Hash Layers (Roller et al. 2021), simplified: y = FFN_h(token)(x).

    A fixed random assignment gives a token one expert, and each expert as many tokens of the vocabulary.
    The assignment of Roller et al. can also balance by frequency.
    """

    expert_of: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.experts = Experts(config)
        order = torch.randperm(config.vocab, generator=torch.Generator().manual_seed(0), device="cpu")
        self.register_buffer("expert_of", order % config.experts, persistent=False)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.experts(x.flatten(0, 1), self.expert_of[tokens.flatten()]).view_as(x)
