import hashlib

import torch
from torch import Tensor

from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.stem import Stem


@ffn("stem-shuffled")
class StemShuffled(Stem):
    """Control: STEM whose rows are shuffled among tokens at every step, so that a row can't know its token.

    A model that is read to be scored has the last deal.
    """

    row_address = "order"
    order: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.register_buffer("order", torch.arange(config.vocab, device="cpu"))

    def start_step(self, stream: str) -> None:
        """Deal the rows out anew, by the stream's name."""
        key = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:7], "big")
        generator = torch.Generator().manual_seed(key)
        self.order.copy_(torch.randperm(len(self.order), generator=generator))

    def rows(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.table(self.order[tokens])
