"""Tables in a file that is mapped into memory, the rows of a token side by side, as the official engine lays them out.

A row that no page of memory holds is read from the disk when a layer asks for it (a page fault), or ahead of that.
"""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

AT_ONCE = 1024
"""Tokens whose rows are written together."""


class Mapped:
    """A file at `path` with the rows of several tables [vocab, F] of one type; `tables` are the same in the file."""

    def __init__(self, path: Path, tables: Sequence[Tensor]) -> None:
        vocab, width = tables[0].shape
        self.record = len(tables) * width * tables[0].element_size()
        with open(path, "wb") as out:
            for first in range(0, vocab, AT_ONCE):
                rows = torch.stack([table[first : first + AT_ONCE] for table in tables], dim=1)
                out.write(rows.view(torch.uint8).numpy().data)
                os.fsync(out.fileno())  # what isn't on the disk can't leave the page cache
                os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.file = open(path, "rb")  # noqa: SIM115
        self.map = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_COPY)  # torch wants memory that it could write
        self.map.madvise(mmap.MADV_RANDOM)  # or the kernel reads on behind each row
        whole = torch.frombuffer(self.map, dtype=tables[0].dtype).view(vocab, len(tables), width)
        self.tables = list(whole.unbind(dim=1))

    def close(self) -> None:
        """Close the file; what is mapped stays."""
        self.file.close()

    def cool(self) -> None:
        """Empty the page cache of the file; what the disk itself or a host of this machine keeps stays."""
        self.map.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def warm(self, tokens: Tensor) -> None:
        """Read the rows of tokens into the page cache, and none of their pages into this process."""
        for token in set(tokens.flatten().tolist()):
            os.pread(self.file.fileno(), self.record, token * self.record)
        self.map.madvise(mmap.MADV_DONTNEED)

    def ask(self, tokens: Tensor) -> None:
        """Ask for the rows of tokens, of all tables; they come while this process goes on."""
        for token in set(tokens.flatten().tolist()):
            os.posix_fadvise(self.file.fileno(), token * self.record, self.record, os.POSIX_FADV_WILLNEED)


def bytes_from_disk() -> int:
    """Return the bytes that this process has caused to be read from disks so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])
