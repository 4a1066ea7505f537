"""What more context is worth: losses by position, and of the same targets with and without the half before them.

The second half of a block is scored three times: after its first half as it is ("intact"), after the same tokens in a
shuffled order ("shuffled"), and without it ("alone"). Targets and their last tokens are the same each time. So
differences between arms that grow from "alone" to "intact" can only come from the first half; what "shuffled" leaves of
them needs no order.
"""

from collections.abc import Callable

import numpy as np
import torch

from stemrepro.config.buckets import CONTEXTS, position_edges
from stemrepro.data.blocks import TokenBlocks
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder


def shuffled_prefixes(rows: torch.Tensor, numbers: np.ndarray, half: int) -> torch.Tensor:
    """Return blocks [n, T + 1] with their first `half` tokens in another order.

    The block's number fixes the order: it is the same for all arms and seeds.
    """
    rows = rows.clone()
    for place, number in enumerate(numbers):
        order = np.random.Generator(np.random.PCG64([7, int(number)])).permutation(half)
        rows[place, :half] = rows[place, torch.from_numpy(order)]
    return rows


def sums(values: np.ndarray, documents: np.ndarray, buckets: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sum values [n, T] by document and bucket, each [n, T] or of a shape that broadcasts to it -> `shape`."""
    keys = documents * shape[1] + buckets
    return np.bincount(keys.ravel(), weights=values.ravel(), minlength=shape[0] * shape[1]).reshape(shape)


def context_sums(
    model: Decoder,
    blocks: TokenBlocks,
    numbers: np.ndarray,
    documents: np.ndarray,
    nats: np.ndarray,
    batch: int,
    report: Callable,
) -> dict[str, np.ndarray]:
    """Sum losses over the blocks that lie within one document.

    Args:
        documents: number of each target's document [n, T].
        nats: losses of the blocks as they are [n, T].

    Returns:
        by_position, by_position_tokens [documents, buckets of T]: losses and targets by position in the block;
        by_target [3, documents, buckets of T/2], by_target_tokens [documents, buckets]: of the second half under each
        condition, by offset from its start; document [documents]: their numbers in the index.
    """
    length = nats.shape[1]
    half = length // 2
    spans = blocks.about["documents"]
    starts = numbers * blocks.length
    first_document = [spans[number] for number in documents[:, 0]]
    whole = np.array(
        [
            begin <= start and start + length < begin + size
            for start, (_, _, begin, size) in zip(starts, first_document, strict=True)
        ]
    )
    kept = np.flatnonzero(whole)
    losses = {
        "intact": nats[kept, half:],
        "shuffled": np.empty((len(kept), half)),
        "alone": np.empty((len(kept), half)),
    }
    device = next(model.parameters()).device
    with torch.no_grad():
        for first in range(0, len(kept), batch):
            part = slice(first, first + batch)
            rows = blocks.at(numbers[kept[part]])
            mixed = shuffled_prefixes(rows, numbers[kept[part]], half)
            for condition, tokens in (("shuffled", mixed), ("alone", rows[:, half:])):
                moved = tokens.to(device)
                moved_losses = token_losses(model(moved[:, :-1]), moved[:, 1:])
                losses[condition][part] = moved_losses[:, -half:].cpu().numpy()
            report(first + len(rows))
    chosen, place = np.unique(documents[kept, 0], return_inverse=True)
    by_position, by_offset = (
        np.searchsorted(position_edges(n), np.arange(n), side="right") - 1 for n in (length, half)
    )
    wide, narrow = (len(chosen), len(position_edges(length))), (len(chosen), len(position_edges(half)))
    ones = np.ones((len(kept), length))
    return {
        "document": chosen,
        "by_position": sums(nats[kept], place[:, None], by_position, wide),
        "by_position_tokens": sums(ones, place[:, None], by_position, wide).astype(int),
        "by_target": np.stack([sums(losses[c], place[:, None], by_offset, narrow) for c in CONTEXTS]),
        "by_target_tokens": sums(ones[:, half:], place[:, None], by_offset, narrow).astype(int),
    }
