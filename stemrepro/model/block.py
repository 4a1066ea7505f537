"""One block of the decoder: grouped-query attention with rotary positions, then a feed-forward network.

Shapes: B batch, T sequence, D width, H heads, K key/value heads, E head width.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stemrepro.model.cache import Cache
from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.ffn.base import ffn_class

LONG = 4096
"""From so many tokens a sequence on, attention goes document by document: a mask [T, T] would take 16 MB and more."""


def rotary_angles(length: int, head_width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary positions, each [length, head_width]; made once per length and device.

    A function of its own around the cache: training.compiling has the compiler take its result as a constant.
    """
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
    """Return the documents of sequences [B, T]; a sequence's end ends its last one, too.

    training.compiling keeps this function and the next out of compiled graphs.
    """
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


@dataclass(eq=False)
class Context:
    """What all blocks read in a pass, next to the residual stream.

    Attributes:
        tokens: [B, T].
        embedded: their input embeddings [B, T, D], before pairs and a memory add to them.
        cos, sin: of their positions, [T, E] or [B, 1, T, E].
        mask: bool [B, 1, T, T + cached tokens], True where attention is allowed; documents that don't see each other;
            or None for plain causal attention.
        cache: of tokens that these follow.
    """

    tokens: Tensor
    embedded: Tensor
    cos: Tensor
    sin: Tensor
    mask: Tensor | Documents | None = None
    cache: Cache | None = None


def context_of(
    config: ModelConfig, tokens: Tensor, embedded: Tensor, cache: Cache | None = None, mask: Tensor | None = None
) -> Context:
    """Return the context of a pass over tokens [B, T], which are added to the cache; the rest is as in `Context`.

    Under a mask a token's position is the number of others that it attends to.
    """
    seen = tokens if cache is None else cache.extend(tokens)
    new, length = tokens.shape[1], seen.shape[1]
    made = length if cache is None else 1 << length.bit_length()  # or each new token would need angles of its own
    cos, sin = rotary_angles(made, config.head_width, config.rope_base, tokens.device)
    allowed: Tensor | Documents | None = mask
    if mask is not None:
        places = mask.sum(dim=-1) - 1
        cos, sin = cos[places], sin[places]
    elif cache is not None:
        cos, sin = cos[length - new : length], sin[length - new : length]
        causal = torch.ones(1, 1, length, length, dtype=torch.bool, device=tokens.device).tril()
        allowed = (document_mask(seen) if config.document_mask else causal)[:, :, -new:]
    elif config.document_mask:
        allowed = documents_of(tokens) if length >= LONG else document_mask(tokens)
    return Context(tokens, embedded, cos, sin, allowed, cache)


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

    def _heads(self, projected: Any) -> Any:  # torch types no `unflatten`
        return projected.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def values(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return the values of all heads: x [B, T, D], tokens [B, T] -> [B, T, K x E]."""
        return self.value(x) if self.table is None else self.value(x) + self.table(tokens)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Attend: x [B, T, D] -> [B, T, D]."""
        query = rotate(self._heads(self.query(x)), context.cos, context.sin)
        key = rotate(self._heads(self.key(x)), context.cos, context.sin)
        value = self._heads(self.values(x, context.tokens))
        if context.cache is not None:
            key, value = context.cache.layers[self.layer].extend(key, value)
        query, key, mask = query.to(value.dtype), key.to(value.dtype), context.mask
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
        self.attention_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = nn.RMSNorm(config.width, config.norm_eps)
        self.ffn = ffn_class(config.ffn_of(layer))(config)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Apply the layer: x [B, T, D] -> [B, T, D]."""
        x = x + self.attention(self.attention_norm(x), context)
        read = context.embedded if self.ffn.reads_embedding else x
        x = x + self.ffn(self.ffn_norm(read), context.tokens)
        return x
