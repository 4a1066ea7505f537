"""In what order a run reads its blocks: every block once per epoch, as seed and epoch say.

A small text has the permutation that numpy draws. From ten million blocks on, drawing one takes seconds and eight bytes
a block in every process. A keyed bijection (Black and Rogaway 2002) then computes each place by itself: a Feistel
network over the next power of four, and outcomes beyond the last block go through it again (cycle-walking).
"""

from functools import lru_cache

import numpy as np

LARGE = 10_000_000
"""Blocks from which on the order is computed; another number would change the runs in between."""
ROUNDS = 8


@lru_cache(maxsize=2)
def drawn(count: int, seed: int, epoch: int) -> np.ndarray:
    """Return a permutation of so many blocks -> int64 [count]."""
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(count)


def _mixed(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """Return 64 bits for each value that look independent of it: the finalizer of SplitMix64 over value and key."""
    values = values + key
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def computed(places: np.ndarray, count: int, seed: int, epoch: int) -> np.ndarray:
    """Return which of 2**62 blocks at most stand at places of an epoch -> int64, of `places`' shape."""
    half = np.uint64(max(1, (int(count - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = np.random.SeedSequence([seed, epoch]).generate_state(ROUNDS, np.uint64)
    blocks = np.asarray(places).astype(np.uint64)
    outside = np.ones(blocks.shape, dtype=bool)
    while outside.any():
        left, right = blocks[outside] >> half, blocks[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right, key) & mask)
        blocks[outside] = left << half | right
        outside = blocks >= np.uint64(count)
    return blocks.astype(np.int64)


def block_order(places: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return which blocks a run reads at places of its whole training, `count` an epoch -> int64 [places]."""
    epochs, within = np.divmod(places, count)
    blocks = np.empty(len(places), dtype=np.int64)
    for epoch in np.unique(epochs).tolist():
        here = epochs == epoch
        if count < LARGE:
            blocks[here] = drawn(count, seed, epoch)[within[here]]
        else:
            blocks[here] = computed(within[here], count, seed, epoch)
    return blocks
