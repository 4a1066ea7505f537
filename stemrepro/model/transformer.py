"""The decoder of every arm: RMSNorm, rotary positions, grouped-query attention, an FFN per layer, untied embeddings.

Same function as Hugging Face's Llama (tests copy weights across and compare logits), so that the dense arm is a known
baseline. Shapes: B batch, T sequence, D width, V vocabulary.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from stemrepro.model.block import Block, context_of
from stemrepro.model.cache import Cache
from stemrepro.model.config import ModelConfig
from stemrepro.model.ffn.base import FFN, is_table
from stemrepro.model.loss import losses_in_parts, token_losses
from stemrepro.model.memory.base import Memory, memory_class
from stemrepro.model.memory.blocks import MemoryBlock
from stemrepro.model.names import OWN_FILE
from stemrepro.model.pairs import PairInput


class Decoder(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.pairs = PairInput(config) if config.pair_rows else None
        self.memory = memory_class(config.memory)(config) if config.memory else None
        blocks = [
            Block(config, layer)
            if self.memory is None or layer not in config.memory_layers
            else MemoryBlock(config, layer, self.memory)
            for layer in range(config.layers)
        ]
        self.blocks = nn.ModuleList(blocks)
        if config.table_shared:
            owner, *others = (blocks[layer].ffn for layer in config.replaced_layers)
            for ffn in others:
                del ffn.table
                object.__setattr__(ffn, "table", owner.table)  # not registered again: it is saved and trained once
        self.norm = nn.RMSNorm(config.width, config.norm_eps)
        self.head = nn.Linear(config.width, config.vocab, bias=False)

    @property
    def ffns(self) -> list[FFN]:
        """The feed-forward network of every layer."""
        blocks: Iterable[Any] = self.blocks
        return [block.ffn for block in blocks]

    @property
    def caches(self) -> bool:
        """Whether a token's pass needs only keys and values of the tokens before it.

        False for a network outside the package, of which that is unknown.
        """
        pairs = self.pairs is not None or any(ffn.row_address == "pair" for ffn in self.ffns)
        pairs = pairs or (self.memory is not None and self.memory.looks_back)
        return not pairs and not OWN_FILE.fullmatch(self.config.ffn)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the logits: tokens [B, T] -> [B, T, V].

        With a cache, the tokens follow the cached ones and are added to it.

        ValueError: as for `hidden`.
        """
        return self.head(self.hidden(tokens, cache))

    def losses(self, tokens: Tensor, targets: Tensor, at_once: int | None = None) -> Tensor:
        """Return the losses in nats: tokens and the tokens that follow them [B, T] -> float32 [B, T].

        With `at_once`, the logits of so many tokens are in memory at a time, in place of all.
        """
        hidden = self.hidden(tokens)
        if at_once is None:
            return token_losses(self.head(hidden), targets).clone()  # FSDP takes no view
        return losses_in_parts(self.head, hidden, targets, at_once)

    def hidden(self, tokens: Tensor, cache: Cache | None = None, mask: Tensor | None = None) -> Tensor:
        """Return what the head reads: tokens [B, T] -> [B, T, D].

        Args:
            cache: of tokens that these follow; these are added to it.
            mask: bool [B, 1, T, T + tokens of the cache], what each token attends to, in place of all up to itself. Its
                position is the number of others that it attends to.

        Raises:
            ValueError: a cache or a mask, and memories addressed by pairs of tokens, which would miss the token before.
        """
        if (cache is not None or mask is not None) and not self.caches:
            memory = self.config.memory or f"{self.config.ffn}' with pair_rows '{self.config.pair_rows}"
            raise ValueError(f"'{memory}' can't use a cache or a mask")
        x = self.embedding(tokens)
        context = context_of(self.config, tokens, x, cache, mask)
        if self.pairs is not None:
            x = x + self.pairs(tokens)
        if self.memory is not None:
            x = self.memory.inputs(x, tokens)
        for block in self.blocks:
            x = block(x, context)
        return self.norm(x)


def table_std(table_init: str, rows: int, width: int) -> float:
    """Return the initial standard deviation of a table [rows, width], by ModelConfig.table_init."""
    return {"xavier": math.sqrt(2 / (rows + width)), "small": 0.02, "normal": 1.0}[table_init]


def initialise(model: Decoder, seed: int) -> None:
    """Set every weight from a separate random stream, named by seed and parameter, so that arms share a backbone.

    | parameter               | distribution                                        | where from                 |
    |-------------------------|-----------------------------------------------------|----------------------------|
    | norms, scale of jtok    | 1                                                   |                            |
    | `starts` of a network   | the values that it gives                            | its class                  |
    | matrices                | normal, std 1/sqrt(width), cut at 3 std             | official code              |
    | embedding, head         | the same, or the given std                          | official code, or a study  |
    | ffn.down, of experts    | normal, std 1/sqrt(its width), cut at 3 std         | official code              |
    | mix of a blend          | 0                                                   |                            |
    | pairs.scale             | embedding's std / std of the pairs' table           | as large as a token's row  |
    | tables, xavier          | normal, std sqrt(2 / (its rows + its width))        | official code              |
    | table of stem-slots     | as STEM's: the rows of one slot count               |                            |
    | tables, small           | normal, std 0.02                                    |                            |
    | tables, normal          | normal, std 1                                       |                            |
    """
    config = model.config
    starts = {
        f"{place}.{name}": value
        for place, module in model.named_modules()
        if isinstance(module, FFN | Memory)
        for name, value in module.starts.items()
    }
    if config.pair_rows:
        starts["pairs.scale"] = (config.embedding_std or config.width**-0.5) / table_std(
            config.table_init, config.pair_rows, config.width
        )
    for name, parameter in model.named_parameters():
        if name in starts:
            nn.init.constant_(parameter, starts[name])
            continue
        if parameter.dim() < 2:
            nn.init.constant_(parameter, parameter.dim())  # the mix of a blend is 0, gains and scales of channels 1
            continue
        stream = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
        generator = torch.Generator().manual_seed(stream)
        if is_table(name):
            rows, width = parameter.shape
            rows //= config.slots if config.slots and name.endswith("ffn.table.weight") else 1
            nn.init.normal_(parameter, 0.0, table_std(config.table_init, rows, width), generator)
        else:
            std_of = {"embedding.weight": config.embedding_std, "head.weight": config.head_std}.get(name)
            inner = name.endswith(("ffn.down.weight", "experts.down", "shared.down.weight"))
            std = std_of or (parameter.shape[-1] if inner else config.width) ** -0.5
            nn.init.trunc_normal_(parameter, 0.0, std, -3 * std, 3 * std, generator)


def build(config: ModelConfig, seed: int) -> Decoder:
    """Return a decoder on the CPU with the weights of `seed`."""
    model = Decoder(config)
    initialise(model, seed)
    return model
