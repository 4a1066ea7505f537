"""The decoder of every arm: RMSNorm, rotary positions, grouped-query attention, an FFN per layer, untied embeddings.

Same function as Hugging Face's Llama (tests copy weights across and compare logits), so that the dense arm is a known
baseline. Shapes: B batch, T sequence, D width, H heads, K key/value heads, E head width, V vocabulary.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.cache import Cache, LayerCache
from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.ffn.base import FFN, ffn_class, is_table
from stemrepro.model.ffn.naming import OWN_FILE
from stemrepro.model.loss import losses_in_parts, token_losses
from stemrepro.model.memory.base import Memory, memory_class
from stemrepro.model.pairs import PairInput

LONG = 4096
"""From so many tokens a sequence on, attention goes document by document: a mask [T, T] would take 16 MB and more."""


def rotary_angles(length: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary positions, each [length, head_width]; made once per length and device."""
    return _angles(length, head_width, base, device)


@lru_cache(maxsize=8)
def _angles(length: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # or a table made while scoring could not be trained with
        steps = torch.arange(0, head_width, 2, dtype=torch.float64, device=device)
        positions = torch.arange(length, dtype=torch.float64, device=device)
        angle = torch.outer(positions, base ** (-steps / head_width)).repeat(1, 2)
        return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions: x [B, H, T, E], cos and sin [T, E] or [B, 1, T, E] -> [B, H, T, E]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


def document_mask(tokens: Tensor) -> Tensor:
    """Return the causal mask inside documents: tokens [B, T] -> bool [B, 1, T, T], True where attention is allowed.

    The end-of-document token belongs to the document it ends.
    """
    ends = (tokens == END_OF_DOCUMENT).long()
    document = ends.cumsum(dim=1) - ends
    same = document[:, :, None] == document[:, None, :]
    return (same & torch.ones_like(same[0]).tril())[:, None]


@dataclass(frozen=True, eq=False)
class Documents:
    """The documents of sequences, one sequence after another; `lengths` are their tokens."""

    lengths: list[int]


def documents_of(tokens: Tensor) -> Documents:
    """Return the documents of sequences [B, T]; a sequence's end ends its last one, too."""
    ends = tokens == END_OF_DOCUMENT
    ends[:, -1] = True
    places = ends.flatten().nonzero().flatten()
    return Documents(torch.diff(places, prepend=places.new_tensor([-1])).tolist())


def attend_inside(documents: Documents, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend causally inside each document: query [B, H, T, E], key and value [B, K, T, E] -> [B, H, T, E].

    No mask is made, and nothing is computed for two tokens of different documents.
    """
    each = (torch.split(x.transpose(0, 1).flatten(1, 2)[None], documents.lengths, 2) for x in (query, key, value))
    grouped = query.shape[1] != key.shape[1]
    mixed = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        for q, k, v in zip(*each, strict=True)
    ]
    return torch.cat(mixed, 2).view(query.transpose(0, 1).shape).transpose(0, 1)


class Attention(nn.Module):
    """Causal grouped-query attention with rotary positions.

    In `value_layers` a table row is added to the values: v = W_v x + U[token], U [vocab, kv_heads x head_width]
    (value embeddings).
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.head_width, self.grouped = layer, config.head_width, config.heads != config.kv_heads
        self.query = nn.Linear(config.width, config.heads * config.head_width, bias=False)
        self.key = nn.Linear(config.width, config.kv_heads * config.head_width, bias=False)
        self.value = nn.Linear(config.width, config.kv_heads * config.head_width, bias=False)
        self.out = nn.Linear(config.heads * config.head_width, config.width, bias=False)
        placed = layer in config.value_layers
        self.table = nn.Embedding(config.vocab, config.kv_heads * config.head_width) if placed else None

    def forward(
        self, x: Tensor, tokens: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | Documents | None,
        past: LayerCache | None = None, memory: Memory | None = None,
    ) -> Tensor:  # fmt: skip
        """Attend: x [B, T, D], tokens [B, T], cos and sin [T, E] or [B, 1, T, E] -> [B, T, D].

        The mask is [B, 1, T, T + tokens of `past`], documents that don't see each other, or None for plain causal
        attention.
        """
        query = rotate(self.query(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2), cos, sin)
        key = rotate(self.key(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2), cos, sin)
        value = self.value(x) if self.table is None else self.value(x) + self.table(tokens)
        if memory is not None:
            value = memory.values(self.layer, value, x, tokens)
        value = value.unflatten(-1, (-1, self.head_width)).transpose(1, 2)
        if past is not None:
            key, value = past.extend(key, value)
        query, key = query.to(value.dtype), key.to(value.dtype)
        if isinstance(mask, Documents):
            mixed = attend_inside(mask, query, key, value)
        else:
            mixed = F.scaled_dot_product_attention(
                query, key, value, mask, is_causal=mask is None, enable_gqa=self.grouped
            )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """One pre-norm layer: attention, then the layer's FFN."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.attention_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.ffn = ffn_class(config.ffn_of(layer))(config)

    def forward(
        self, x: Tensor, embedded: Tensor, tokens: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | Documents | None,
        past: LayerCache | None = None, memory: Memory | None = None,
    ) -> Tensor:  # fmt: skip
        """Apply the layer: x and the tokens' input embeddings [B, T, D], tokens [B, T] -> [B, T, D]."""
        if memory is not None:
            x = memory.before(self.layer, x, tokens)
        x = x + self.attention(self.attention_norm(x), tokens, cos, sin, mask, past, memory)
        x = x + self.ffn(self.ffn_norm(embedded if self.ffn.reads_embedding else x), tokens)
        return x if memory is None else memory.after(self.layer, x, embedded, tokens)


class Decoder(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.pairs = PairInput(config) if config.pair_rows else None
        self.memory = memory_class(config.memory)(config) if config.memory else None
        blocks = [Block(config, layer) for layer in range(config.layers)]
        self.blocks = nn.ModuleList(blocks)
        if config.table_shared:
            first, *others = (blocks[layer].ffn for layer in config.replaced_layers)
            for ffn in others:
                del ffn.table
                object.__setattr__(ffn, "table", first.table)  # not registered again: it is saved and trained once
        self.norm = nn.RMSNorm(config.width, config.norm_eps)
        self.head = nn.Linear(config.width, config.vocab, bias=False)

    @property
    def caches(self) -> bool:
        """Whether a token's pass needs only keys and values of the tokens before it.

        False for a network outside the package, of which that is unknown.
        """
        ffns = (module for module in self.modules() if isinstance(module, FFN))
        pairs = self.pairs is not None or any(ffn.row_address == "pair" for ffn in ffns)
        pairs = pairs or (self.memory is not None and self.memory.looks_back)
        return not pairs and not OWN_FILE.fullmatch(self.config.ffn)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the logits: tokens [B, T] -> [B, T, V].

        With a cache, the tokens follow the cached ones and are added to it.

        Raises:
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
        whole = tokens if cache is None else cache.extend(tokens)
        length = whole.shape[1]
        cos, sin = rotary_angles(length if cache is None else 1 << length.bit_length(), self.config.head_width,
                                 self.config.rope_base, tokens.device)  # fmt: skip
        if (cache is not None or mask is not None) and not self.caches:
            memory = self.config.memory or f"{self.config.ffn}' with pair_rows '{self.config.pair_rows}"
            raise ValueError(f"'{memory}' can't use a cache or a mask")
        within: Tensor | Documents | None = mask
        if mask is not None:
            places = mask.sum(dim=-1) - 1
            cos, sin = cos[places], sin[places]
        elif cache is None and self.config.document_mask:
            within = documents_of(tokens) if length >= LONG else document_mask(tokens)
        elif cache is not None:
            cos, sin = cos[length - tokens.shape[1] : length], sin[length - tokens.shape[1] : length]
            if self.config.document_mask:
                within = document_mask(whole)
            else:
                within = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()[None, None]
            within = within[:, :, -tokens.shape[1] :]
        x = embedded = self.embedding(tokens)
        if self.pairs is not None:
            x = x + self.pairs(tokens)
        if self.memory is not None:
            x = self.memory.inputs(x, tokens)
        for block, past in zip(self.blocks, cache.layers if cache else [None] * len(self.blocks), strict=True):
            x = block(x, embedded, tokens, cos, sin, within, past, self.memory)
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
    given = {
        f"{place}.{name}": value
        for place, module in model.named_modules() if isinstance(module, FFN | Memory)
        for name, value in module.starts.items()
    }  # fmt: skip
    for name, parameter in model.named_parameters():
        if name in given:
            nn.init.constant_(parameter, given[name])
            continue
        if name == "pairs.scale":
            nn.init.constant_(
                parameter,
                (config.embedding_std or config.width**-0.5)
                / table_std(config.table_init, config.pair_rows, config.width),
            )
            continue
        if parameter.dim() == 0:  # the mix of a blend
            nn.init.zeros_(parameter)
            continue
        if parameter.dim() == 1:  # gains of norms, scales of channels
            nn.init.ones_(parameter)
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
