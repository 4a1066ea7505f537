"""A text that memory can't hold: a sample of it as its corpus, and the rest as token blocks, a shard per part.

Which documents are held out, and which are in the sample, a hash of each says, so that copies of a document are in one
split. Nothing else is compared: take a text without near-duplicates. A part is read, encoded and written by itself.
A killed run repeats the part that it was at, and the bytes are the same.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged, read_json, sha256, sync, write_json
from stemrepro.common.progress import track
from stemrepro.data.encoding import train_index, write_blocks
from stemrepro.data.hub import PARTS, begin
from stemrepro.data.integrity import TUNE, VALIDATION, token_type
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.model.config import END_OF_DOCUMENT

BATCH = 64  # documents that are encoded at once: what that takes, some hundred bytes a token, is in memory meanwhile


def part_files(raw: Path) -> list[Path]:
    """Return the files that `take` wrote, in reading order."""
    return [raw / PARTS / f"{number:05d}.parquet" for number in range(read_json(raw / "hub.json")["parts"])]


def batches_of(path: Path) -> Iterator[list[str]]:
    """Return the documents of a part, some at a time; UserError where it is missing or damaged."""
    from pyarrow.parquet import ParquetFile

    try:
        with open(path, "rb") as file:
            for batch in ParquetFile(file).iter_batches(BATCH):
                yield batch["text"].to_pylist()
    except (OSError, KeyError, ValueError) as error:
        raise damaged(path, error) from error


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def limits(raw: Path) -> dict[str, float]:
    """Return, by split, below which number a document's hash must be; of training text, for the sample alone."""
    about = read_json(raw / "hub.json")
    share = min(1.0, 1000 * about["asked"]["sample"] / about["bytes"])
    return {"validation": VALIDATION * share, "tune": (VALIDATION + TUNE) * share, "train": share}


def split_of(key: str, below: dict[str, float]) -> str | None:
    """Return the split of a document of the sample; None for others, which are training text."""
    number = int(key[:13], 16) / 16**13  # exact, as a double has 53 bits
    return next((split for split, limit in below.items() if number < limit), None)


def sample_rows(raw: Path) -> list[dict[str, Any]]:
    """Return a large text's corpus: all held out, and a sample of the training text; UserError: a split is empty."""
    below, rows = limits(raw), {}
    for path in track(part_files(raw), "sampling"):
        for text in (text for batch in batches_of(path) for text in batch):
            if split := split_of(key := _hashed(text), below):
                rows[key] = {"source": "hub", "id": key, "split": split, "text": text}
    filled = {row["split"] for row in rows.values()}
    if missing := [split for split in below if split not in filled]:
        raise UserError(
            f"{raw}: the sample has no document for {' and '.join(missing)} (it has {len(rows):,}); raise `sample` in "
            "recipes/mixes.yaml, or leave it out for a small text"
        )
    return list(rows.values())


def encode_parts(raw: Path, tokenizer_file: Path, out: Path) -> list[dict[str, Any]]:
    """Write the training text as shards into a folder, where the same call goes on with what it left.

    Return source, shard, documents and bytes of text of each shard that has tokens.
    """
    tokenizer, below = read_tokenizer(tokenizer_file), limits(raw)
    dtype, written = token_type(tokenizer.get_vocab_size()), []
    begin(out, {"text": read_json(raw / "hub.json"), "tokenizer": sha256(tokenizer_file)})
    for path in track(part_files(raw), "encoding train"):
        shard, note = out / f"hub-{path.stem}.bin", out / f"hub-{path.stem}.json"
        if not note.exists():
            tokens = documents = size = 0
            with open(shard, "wb") as file:
                for batch in batches_of(path):
                    train = [text for text in batch if split_of(_hashed(text), below) in (None, "train")]
                    for encoded in tokenizer.encode_batch_fast(train):
                        file.write(np.array([*encoded.ids, END_OF_DOCUMENT], dtype).tobytes())
                        tokens += len(encoded.ids) + 1
                    documents += len(train)
                    size += sum(len(text.encode()) for text in train)
                sync(file)
            about = {"name": shard.name, "tokens": tokens, "sha256": sha256(shard)}
            write_json(note, {"source": "hub", "shard": about, "documents": documents, "bytes": size})
        written.append(read_json(note))
    return [part for part in written if part["shard"]["tokens"]]


def write_large(raw: Path, corpus: Path, tokenizer_file: Path, out: Path) -> None:
    """Write token blocks: held-out splits of `corpus`, training text in shards; the unfinished lie in `out`.part."""
    aside = out.with_name(f"{out.name}.part")
    train = train_index(encode_parts(raw, tokenizer_file, aside))
    out.mkdir(parents=True, exist_ok=True)
    for shard in train["shards"]:
        (out / shard["name"]).unlink(missing_ok=True)
        try:  # what lies aside stays until the index is written
            os.link(aside / shard["name"], out / shard["name"])
        except OSError:  # not every file system has hard links
            shutil.copyfile(aside / shard["name"], out / shard["name"])
    write_blocks(corpus, tokenizer_file, out, train)
    shutil.rmtree(aside)
