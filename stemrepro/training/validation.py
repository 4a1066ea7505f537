"""Losses of a model by source, within a run and after it."""

import torch
from torch import Tensor

from stemrepro.common.sums import total
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.transformer import Decoder
from stemrepro.training.run import Run


def losses_by_source(
    model: Decoder, blocks: TokenBlocks, tokens: int, batch: int, at_once: int | None = None
) -> dict[str, float]:
    """Return the mean loss in nats per token of each source, over `tokens` evenly spread tokens per source.

    `at_once` is that of Decoder.losses.
    """
    numbers, documents = blocks.spread(tokens)
    sources = [document[1] for document in blocks.about["documents"]]
    device = next(model.parameters()).device
    found: list[Tensor] = []
    with torch.no_grad():
        for begin in range(0, len(numbers), batch):
            rows = blocks.at(numbers[begin : begin + batch]).to(device)
            found.append(model.losses(rows[:, :-1], rows[:, 1:], at_once).double().mean(dim=1))
    sums: dict[str, list[float]] = {}
    for loss, document in zip(torch.cat(found).tolist(), documents[:, 0], strict=True):
        sums.setdefault(sources[document], []).append(loss)
    return {source: total(values) / len(values) for source, values in sums.items()}


def validation_losses(run: Run, model: Decoder) -> dict[str, float]:
    """Return the loss by source on a small, fixed part of a run's validation split."""
    training = run.training
    blocks = TokenBlocks(run.blocks, "validation", training.sequence, run.model.vocab)
    return losses_by_source(model, blocks, training.eval_tokens, training.eval_batch, training.loss_tokens)
