"""Continuations of prompts, greedy or sampled, by a key-value cache.

Each new token costs a pass over itself, and reads its own rows.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from stemrepro.model.cache import Cache
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.transformer import Decoder

Choose = Callable[[Tensor], Tensor]
"""From logits [batch, vocab] to the next tokens [batch]."""


def greedy(logits: Tensor) -> Tensor:
    """Return the most probable tokens."""
    return logits.argmax(dim=-1)


def sampled(temperature: float, top: int, seed: int) -> Choose:
    """Return a function that draws from the `top` most probable tokens (0: all) at a temperature.

    Equal seeds draw alike.
    """
    generator = torch.Generator().manual_seed(seed)

    def choose(logits: Tensor) -> Tensor:
        logits = logits.float().cpu() / temperature
        if 0 < top < logits.shape[-1]:
            least = logits.topk(top, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0].to(logits.device)

    return choose


@torch.no_grad()
def continuations(
    model: Decoder, prompts: Tensor, count: int, choose: Choose = greedy, context: int | None = None
) -> Iterator[Tensor]:
    """Yield the next tokens [batch] of prompts of one length, up to `count` times.

    A prompt that has ended continues with END_OF_DOCUMENT; the function stops once all have ended.
    A token costs a pass over the newest `context` tokens where they no longer fit the context.
    So it does in models whose rows are addressed by pairs of tokens.

    Args:
        prompts: [batch, tokens], on the model's device.
        context: tokens that the model sees at most; None: all of them.
    """
    rows, cache, new = prompts, Cache(len(model.blocks)), prompts
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    for _ in range(count):
        if model.caches and (context is None or rows.shape[1] <= context):
            logits = model(new, cache)
        else:
            logits = model(rows if context is None else rows[:, -context:])
        token = choose(logits[:, -1]).to(rows.device).masked_fill(ended, END_OF_DOCUMENT)
        yield token
        ended |= token == END_OF_DOCUMENT
        if ended.all():
            return
        new = token[:, None]
        rows = torch.cat([rows, new], dim=1)
