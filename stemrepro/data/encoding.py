"""From a corpus to token blocks: one flat file of token ids per split, and an index; of texts in shards, shares.

A share is so many tokens of a text, of each of its files the same part from its start.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, sha256, sync, write_json
from stemrepro.common.progress import track
from stemrepro.data.integrity import SPLITS, joined_hash, read_corpus, token_type
from stemrepro.data.readers import order
from stemrepro.data.tokenizer import read_tokenizer, token_bytes
from stemrepro.model.config import END_OF_DOCUMENT


def write_blocks(corpus: Path, tokenizer_file: Path, out: Path, train: dict[str, Any] | None = None) -> None:
    """Write `out`/{train,tune,validation}.bin and `out`/index.json.

    Training documents are concatenated in the order of their ids' hashes, so that sources mix; held-out documents are
    grouped by source. Each document ends with END_OF_DOCUMENT. The index holds the vocabulary, the bytes of each token,
    and for held-out splits each document's source, start and length in tokens. `train` is the index of a training split
    that is written already, and of which the corpus holds a sample.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    rows = sorted(read_corpus(corpus), key=lambda row: order(row["source"], row["id"]))
    dtype = token_type(tokenizer.get_vocab_size())
    index: dict[str, Any] = {"vocab": tokenizer.get_vocab_size(), "token_bytes": token_bytes(tokenizer), "splits": {}}
    for split in SPLITS:
        if split == "train" and train is not None:
            index["splits"][split] = train
            continue
        chosen = [row for row in rows if row["split"] == split]
        if split != "train":
            chosen.sort(key=lambda row: row["source"])
        tokens: list[np.ndarray] = []
        documents, start = [], 0
        for first in track(range(0, len(chosen), 512), f"encoding {split}"):
            part = chosen[first : first + 512]
            for row, encoded in zip(part, tokenizer.encode_batch([row["text"] for row in part]), strict=True):
                tokens.append(np.array([*encoded.ids, END_OF_DOCUMENT], dtype=dtype))
                documents.append((row["id"], row["source"], start, len(tokens[-1])))
                start += len(tokens[-1])
        atomic_write(out / f"{split}.bin", np.concatenate(tokens).tobytes())
        by_source = Counter[str]()
        for _, source, _, length in documents:
            by_source[source] += length
        hashed = sha256(out / f"{split}.bin")
        index["splits"][split] = {"tokens": start, "tokens_by_source": by_source, "sha256": hashed}
        if split != "train":
            index["splits"][split]["documents"] = documents
    write_json(out / "index.json", index)


PIECE = 2**22  # tokens that are copied at a time


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
    tokens: dict[str, int] = {}
    text: dict[str, dict[str, int]] = {}
    for part in parts:
        source, known = part["source"], text.get(part["source"], {"documents": 0, "bytes": 0})
        tokens[source] = tokens.get(source, 0) + part["shard"]["tokens"]
        text[source] = {key: count + part[key] for key, count in known.items()}
    sums = {"tokens": sum(tokens.values()), "tokens_by_source": tokens, "text_by_source": text}
    return sums | {"shards": shards, "sha256": joined_hash(shards)}
