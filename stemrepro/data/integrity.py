"""Checks that a data mix's files are those that were written.

Torch isn't imported, so that commands which only start workers stay quick.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, damaged, read_json, sha256

SPLITS = ("train", "tune", "validation")
VALIDATION, TUNE = 0.08, 0.04  # shares of a source's bytes that are held out


def read_corpus(path: Path) -> list[dict[str, Any]]:
    """Return source, id, split and text of a corpus.parquet; UserError: it is missing or damaged."""
    from pyarrow.parquet import ParquetFile

    try:
        with open(path, "rb") as file:
            rows = ParquetFile(file).read().to_pylist()
        if not all(isinstance(row[key], str) for row in rows for key in ("source", "id", "split", "text")):
            raise ValueError("a document lacks its source, id, split or text")
    except (OSError, KeyError, TypeError, ValueError, NotImplementedError) as error:  # pyarrow raises all of these
        raise damaged(path, error) from error
    return rows


def store_corpus(rows: list[dict[str, Any]], path: Path) -> None:
    """Write what `read_corpus` reads; equal rows give equal bytes."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    buffer = io.BytesIO()
    Dataset.from_list(rows).to_parquet(buffer)  # in memory: nothing of it goes to the library's cache
    atomic_write(path, buffer.getvalue())


def read_index(blocks: Path) -> dict[str, Any]:
    """Return index.json of token blocks: "vocab", "token_bytes" and "splits"; UserError: it is missing or damaged.

    Each split has tokens and sha256; held-out ones have documents too, and one of several files has shards.
    """
    path = blocks / "index.json"
    if not path.exists():
        raise UserError(f"{path} is missing; run 'make reproduce' with its SCALE first")
    index = read_json(path)
    try:
        index["vocab"], index["token_bytes"], index["splits"]["validation"]["documents"]
        index["splits"]["tune"]["documents"], [about["sha256"] for about in index["splits"].values()]
        int(index["splits"]["train"]["tokens"])
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} is garbled ({reason}); delete {blocks} and run again") from error
    return index


def token_type(vocab: int) -> type[np.unsignedinteger]:
    """Return what a token id is stored as: 16 bits where they suffice, otherwise 32."""
    return np.uint16 if vocab <= 2**16 else np.uint32


def files_of(about: dict[str, Any], split: str) -> list[dict[str, Any]]:
    """Return the files of a split in reading order: name, tokens and sha256 of each."""
    return about.get("shards") or [{"name": f"{split}.bin", "tokens": about["tokens"], "sha256": about["sha256"]}]


def joined_hash(files: list[dict[str, Any]]) -> str:
    """Return the sha256 of a split of several files: that of their hashes, in reading order."""
    return hashlib.sha256(" ".join(file["sha256"] for file in files).encode()).hexdigest()


def check_sizes(blocks: Path, index: dict[str, Any], split: str) -> None:
    """Raise UserError unless the files of a split are there and as long as index.json says."""
    for file in files_of(index["splits"][split], split):
        path, size = blocks / file["name"], file["tokens"] * token_type(index["vocab"])().itemsize
        if not path.exists():
            raise UserError(f"{path} is missing; run 'make reproduce' with its SCALE first")
        if path.stat().st_size != size:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes where index.json says {size}: it is truncated; delete "
                f"{blocks} and run again"
            )


def verified_hash(blocks: Path, whole: bool = False) -> str:
    """Return the sha256 of the training blocks, after all splits have been compared with index.json.

    A split of one file is compared by its hash. Shards, which can take minutes to an hour, are read only if `whole`.
    Else their hashes, taken when they were written, must give the split's, and their sizes must be right. UserError: a
    file is missing, or not the one that was written.
    """
    index = read_index(blocks)
    for split, about in index["splits"].items():
        files = files_of(about, split)
        sharded = "shards" in about
        if sharded and about["sha256"] != joined_hash(files):
            raise UserError(f"{blocks}/index.json is garbled (hashes of {split} differ); delete {blocks} and run again")
        if sharded:
            check_sizes(blocks, index, split)
        for file in files if whole or not sharded else []:
            path = blocks / file["name"]
            if not path.exists() or sha256(path) != file["sha256"]:
                raise UserError(
                    f"{path} is missing or garbled (its sha256 is not the recorded one); delete {blocks} and run again"
                )
    return index["splits"]["train"]["sha256"]
