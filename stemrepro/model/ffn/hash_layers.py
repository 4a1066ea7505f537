import heapq
from collections.abc import Callable

import torch
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, ffn
from stemrepro.model.ffn.experts import Experts


def balanced(counts: Tensor, experts: int) -> Tensor:
    """Give the most frequent tokens first, each to the emptiest expert: counts [vocab] -> experts [vocab].

    An expert is as full as its tokens are frequent. A token that never occurs fills it by one.
    """
    loads = [(0, expert) for expert in range(experts)]
    found = torch.empty_like(counts)
    for token in counts.argsort(descending=True, stable=True).tolist():
        load, expert = loads[0]
        heapq.heapreplace(loads, (load + max(1, int(counts[token])), expert))
        found[token] = expert
    return found


@ffn("hash-layers", needs=("experts",), grows_by="experts")
class HashLayers(FFN):
    """Hash Layers (Roller et al. 2021, arXiv 2106.04426), balanced by frequency: y = FFN_h(token)(x).

    The assignment h is their section 3.1's "balanced assignment". Before training, tokens in order of falling frequency
    in the training text are each given to the emptiest expert. It is saved with the weights, and never trained.

    Chosen, because they leave it open: among equals the lower token and the lower expert come first.
    Chosen, because they would all go to one expert: a token that the text doesn't have counts as one that it has once.
    Ids are not ordered by frequency, so their ranks can't stand in for counts: those of single bytes come first. In a
    text of 18 million tokens, with 1,024 ids and 8 experts, the fullest expert has 1.33 times the mean by ranks, 1.21
    at random, and 1.00 by counts.
    A model that no run has begun to train deals its tokens out in turn.
    """

    expert_of: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.experts, self.number = Experts(config), config.experts
        self.register_buffer("expert_of", torch.arange(config.vocab, device="cpu") % config.experts)

    def start_run(self, frequencies: Callable[[], Tensor]) -> None:
        self.expert_of.copy_(balanced(frequencies(), self.number))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.experts(x.flatten(0, 1), self.expert_of[tokens.flatten()]).view_as(x)
