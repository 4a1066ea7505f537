"""Text for a published model: sequences of equal length of the training split, and of documents held out of it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.data.integrity import read_corpus
from stemrepro.published.models import Model

LENGTH = 256
"""Tokens of a sequence, the start token included."""


def sequences(model: Model, corpus: Path, split: str, sources: dict[str, int]) -> pd.DataFrame:
    """Cut the documents of a split into sequences, of as many documents as there are; UserError: a source has fewer.

    Documents that are shorter than a sequence are joined by line ends. Of a longer one its first sequences are taken.

    Args:
        corpus: a corpus.parquet.
        sources: how many sequences of each source are taken.

    Returns:
        source, tokens (int32 [LENGTH], the start token first).
    """
    documents = [row for row in read_corpus(corpus) if row["split"] == split]
    rows = []
    for source, wanted in sources.items():
        texts = [row["text"] for row in documents if row["source"] == source]
        most, joined = -(-wanted // max(1, len(texts))), ""
        cut: list[list[int]] = []
        for text in texts:
            joined = f"{joined}\n{text}" if joined else text
            tokens = model.tokens(joined[: 8 * LENGTH * most])[1:]
            parts = [tokens[first : first + LENGTH - 1] for first in range(0, len(tokens), LENGTH - 1)][:most]
            if whole := [part for part in parts if len(part) == LENGTH - 1]:
                cut, joined = cut + whole, ""
            if len(cut) >= wanted:
                break
        if len(cut) < wanted:
            has = f"split '{split}' of '{source}' has {len(cut)} sequences of {LENGTH} tokens, not {wanted}"
            raise UserError(f"{corpus}: {has}")
        start = model.tokens("")
        rows += [{"source": source, "tokens": np.array([*start, *part], np.int32)} for part in cut[:wanted]]
    return pd.DataFrame(rows)


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Write a table; the file is whole or absent."""
    atomic_write(path, table.to_parquet(index=False))


def once(path: Path, make: Callable[[], pd.DataFrame]) -> None:
    """Write the table that a function makes, where the file isn't there: a killed study resumes."""
    if not path.exists():
        write_parquet(path, make())
