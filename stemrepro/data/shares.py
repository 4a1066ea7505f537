"""Shares of texts in shards: so many tokens of each text, of each of its files the same part from its start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256, sync
from stemrepro.data.integrity import joined_hash, token_type
from stemrepro.model.config import END_OF_DOCUMENT

PIECE = 2**22
"""Tokens that are copied at a time."""


@dataclass(frozen=True)
class File:
    """A file of tokens, and the source that the index counts it to."""

    source: str
    path: Path
    tokens: int


def check_share(name: str, available: int, tokens: int) -> None:
    """Raise UserError unless a text has its share of tokens."""
    if available < tokens:
        raise UserError(
            f"'{name}' has {available:,} training tokens, and {tokens:,} are its share; give it more text in "
            "recipes/mixes.yaml, or the variant that needs it fewer tokens"
        )


def write_share(name: str, files: list[File], tokens: int, sizes: list[int], out: Path) -> list[dict[str, Any]]:
    """Write `out`/`name`-<number>.bin: `tokens` tokens of a text, of each file the same part from its start.

    A document that is cut gets an end mark. Return source, entry in the index, documents and bytes of text of each file
    that was written. UserError: the text has fewer tokens.
    """
    ends = np.cumsum([0, *(file.tokens for file in files)])
    check_share(name, int(ends[-1]), tokens)
    taken = np.diff([tokens * int(end) // int(ends[-1]) for end in ends]).tolist()
    dtype, lengths, written = token_type(len(sizes)), np.array(sizes), []
    for number, (file, count) in enumerate(zip(files, taken, strict=True)):
        if not count:
            continue
        path, documents, size = out / f"{name}-{number:05d}.bin", 0, 0
        source = np.memmap(file.path, dtype=dtype, mode="r")
        path.unlink(missing_ok=True)  # it may be a link into DVC's cache, or a training may have it mapped
        with open(path, "wb") as opened:
            for first in range(0, count, PIECE):
                piece = np.array(source[first : min(first + PIECE, count)])
                if first + len(piece) == count:
                    piece[-1] = END_OF_DOCUMENT
                documents += int(np.count_nonzero(piece == END_OF_DOCUMENT))
                size += int(lengths[piece].sum())
                opened.write(piece.tobytes())
            sync(opened)
        shard = {"name": path.name, "tokens": count, "sha256": sha256(path)}
        written.append({"source": file.source, "shard": shard, "documents": documents, "bytes": size})
    return written


def train_index(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what index.json says of a training split in shards, which have `write_share`'s form, in reading order."""
    shards = [part["shard"] for part in parts]
    by_source: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        by_source.setdefault(part["source"], []).append(part)
    return {
        "tokens": sum(shard["tokens"] for shard in shards),
        "tokens_by_source": {name: sum(part["shard"]["tokens"] for part in own) for name, own in by_source.items()},
        "text_by_source": {
            name: {key: sum(part[key] for part in own) for key in ("documents", "bytes")}
            for name, own in by_source.items()
        },
        "shards": shards,
        "sha256": joined_hash(shards),
    }
