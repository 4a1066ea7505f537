"""Token blocks on disk, and batches that are a pure function of (seed, number).

stemrepro.data.encoding turns a corpus into one flat uint16 file per split; `TokenBlocks` maps such a file into memory.
A block is `length + 1` tokens: inputs and, shifted by one, targets. Batch k needs nothing but the seed and k. So a
resumed run reads batch k again, and there is no loader state to lose.
"""

from pathlib import Path

import numpy as np
import torch

from stemrepro.common.errors import UserError
from stemrepro.data.integrity import read_index
from stemrepro.data.order import block_order


class TokenBlocks:
    """One split, mapped into memory.

    Args:
        folder: what `write_blocks` wrote.
        split: "train", "tune" or "validation".
        length: tokens per sequence.
        vocab: rows of the model's embedding; every token must be below it.

    Raises:
        UserError: missing or truncated file, too few tokens for one block, a token id outside the vocabulary.
    """

    def __init__(self, folder: Path, split: str, length: int, vocab: int) -> None:
        path = Path(folder) / f"{split}.bin"
        if not path.exists():
            raise UserError(f"{path} is missing; run 'make reproduce' with its SCALE first")
        self.index = read_index(Path(folder))
        self.about = self.index["splits"][split]
        if path.stat().st_size != 2 * self.about["tokens"]:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes where index.json says {2 * self.about['tokens']}: it is "
                f"truncated; delete {folder} and run again"
            )
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        if (top := int(self.tokens.max())) >= vocab:
            raise UserError(f"{path} holds token id {top}, outside the model's vocabulary of {vocab}")
        self.path, self.length = path, length
        self.count = (len(self.tokens) - 1) // length
        if self.count < 1:
            raise UserError(f"{path} has {len(self.tokens)} tokens, too few for one block of {length + 1}")

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

        Returns:
            Block numbers [n], and for each target token of them the number of its document [n, length].

        Raises:
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
