"""Token blocks on disk, and batches that are a pure function of (seed, number).

stemrepro.data.encoding turns a corpus into one flat file of token ids per split, stemrepro.data.large a larger text
into several; `TokenBlocks` maps such files into memory. A block is `length + 1` tokens: inputs and, shifted by one,
targets. Batch k needs nothing but the seed and k. So a resumed run reads batch k again, and there is no loader state
to lose.

A run reads every block once per epoch, as seed and epoch say. A small text has the permutation that numpy draws. From
ten million blocks on, drawing one takes seconds and eight bytes a block in every process. A keyed bijection (Black and
Rogaway 2002) then computes each place by itself: a Feistel network over the next power of four, and outcomes beyond the
last block go through it again (cycle-walking).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from stemrepro.common.errors import UserError
from stemrepro.data.integrity import check_sizes, files_of, read_index, token_type

LARGE = 10_000_000  # blocks from which on the order is computed; another number would change the runs in between
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


COUNTED = 2**30  # tokens whose frequencies are counted one by one; of a longer text so many are, evenly spread
PIECE = 2**24  # tokens that are counted at a time


class Tokens:
    """Token ids of several files, read as one sequence."""

    def __init__(self, paths: list[Path], dtype: type[np.unsignedinteger]) -> None:
        self.files = [np.memmap(path, dtype=dtype, mode="r") for path in paths]
        self.starts = np.cumsum([0, *map(len, self.files)])
        self.dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, places: np.ndarray | slice) -> np.ndarray:
        """Return the tokens at places, in an array of their shape."""
        if isinstance(places, slice):
            places = np.arange(*places.indices(len(self)))
        if len(self.files) == 1:
            return self.files[0][places]
        found = np.empty(places.shape, self.dtype)
        file = np.searchsorted(self.starts, places, side="right") - 1
        for number in np.unique(file):
            here = file == number
            found[here] = self.files[number][places[here] - self.starts[number]]
        return found


class TokenBlocks:
    """One split, mapped into memory. No token is read before it is asked for.

    UserError: missing or truncated file, too few tokens for one block, a vocabulary larger than the model's.
    """

    def __init__(self, folder: Path, split: str, length: int, vocab: int) -> None:
        self.index = read_index(folder)
        self.about = self.index["splits"][split]
        check_sizes(folder, self.index, split)
        if (top := self.index["vocab"]) > vocab:
            raise UserError(f"{folder} holds tokens of a vocabulary of {top}, the model has one of {vocab}")
        paths = [folder / file["name"] for file in files_of(self.about, split)]
        self.tokens = Tokens(paths, token_type(top))
        self.path, self.length = folder / f"{split}.bin", length
        self.count = (len(self.tokens) - 1) // length
        if self.count < 1:
            raise UserError(f"{self.path} has {len(self.tokens)} tokens, too few for one block of {length + 1}")

    def frequencies(self, vocab: int) -> np.ndarray:
        """Return how often each token occurs, in 2**30 evenly spread ones where there are more -> int64 [vocab]."""
        firsts = np.arange(0, len(self.tokens), PIECE)
        if len(self.tokens) > COUNTED:
            firsts = firsts[(np.arange(COUNTED // PIECE) * len(firsts)) // (COUNTED // PIECE)]
        counts = np.zeros(vocab, np.int64)
        for first in firsts.tolist():
            counts += np.bincount(self.tokens[first : first + PIECE], minlength=vocab)
        return counts

    def at(self, blocks: np.ndarray) -> torch.Tensor:
        """Return blocks by number -> int64 [len(blocks), length + 1]."""
        rows = self.tokens[np.asarray(blocks)[:, None] * self.length + np.arange(self.length + 1)]
        return torch.from_numpy(rows.astype(np.int64))

    def block_numbers(self, seed: int, k: int, size: int) -> np.ndarray:
        """Return the block numbers of batch k: every block once per epoch, in an order that seed and epoch fix."""
        return block_order(np.arange(k * size, (k + 1) * size), self.count, seed)

    def batch(self, seed: int, k: int, size: int) -> torch.Tensor:
        """Return batch k of a seed -> int64 [size, length + 1]."""
        return self.at(self.block_numbers(seed, k, size))

    def spread(self, tokens_per_source: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose blocks for scoring, evenly spread over each source's stretch of a held-out split.

        Return block numbers [n], and for each target token of them the number of its document [n, length].
        UserError: a source has too few tokens for one block.
        """
        documents = self.about["documents"]
        starts = np.array([d[2] for d in documents])
        chosen = []
        for source in dict.fromkeys(d[1] for d in documents):
            spans = [(d[2], d[2] + d[3]) for d in documents if d[1] == source]
            first, last = -(-spans[0][0] // self.length), (spans[-1][1] - 1) // self.length
            wanted = min(last - first, max(1, tokens_per_source // self.length))
            if wanted < 1:
                raise UserError(f"{self.path}: source '{source}' has too few tokens for one block of {self.length + 1}")
            chosen.append(first + (np.arange(wanted) * (last - first)) // wanted)
        blocks = np.concatenate(chosen)
        targets = blocks[:, None] * self.length + 1 + np.arange(self.length)
        return blocks, np.searchsorted(starts, targets, side="right") - 1
