"""Checks that a data mix's files are those that were written.

Torch isn't imported, so that commands which only start workers stay quick.
"""

import io
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, damaged, read_json, sha256

SPLITS = ("train", "tune", "validation")


def read_corpus(path: Path) -> list[dict]:
    """Return the documents of a corpus.parquet: source, id, split, text.

    Raises:
        UserError: it is missing or damaged, or can't be read.
    """
    from pyarrow.parquet import ParquetFile

    try:
        with open(path, "rb") as file:
            rows = ParquetFile(file).read().to_pylist()
        if not all(isinstance(row[key], str) for row in rows for key in ("source", "id", "split", "text")):
            raise ValueError("a document lacks its source, id, split or text")
    except (OSError, KeyError, TypeError, ValueError, NotImplementedError) as error:  # pyarrow raises all of these
        raise damaged(path, error) from error
    return rows


def store_corpus(rows: list[dict], path: Path) -> None:
    """Write what `read_corpus` reads; equal rows give equal bytes."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    buffer = io.BytesIO()
    Dataset.from_list(rows).to_parquet(buffer)  # in memory: nothing of it goes to the library's cache
    atomic_write(path, buffer.getvalue())


def read_index(blocks: Path) -> dict:
    """Return index.json of token blocks: "vocab", "token_bytes" and "splits".

    Each split has tokens and sha256; held-out ones have documents too.

    Raises:
        UserError: it is missing or damaged.
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


def verified_hash(blocks: Path) -> str:
    """Return the sha256 of the training blocks, after all splits have been compared with the hashes in index.json.

    Raises:
        UserError: a file is missing, or not the one that was written.
    """
    splits = read_index(blocks)["splits"]
    for split, about in splits.items():
        path = blocks / f"{split}.bin"
        if not path.exists() or sha256(path) != about["sha256"]:
            raise UserError(
                f"{path} is missing or garbled (its sha256 is not the recorded one); delete {blocks} and run again"
            )
    return splits["train"]["sha256"]
