"""From a corpus to token blocks: one flat file of token ids per split, and an index."""

from pathlib import Path
from typing import Any

import numpy as np

from stemrepro.common.files import atomic_write, sha256, write_json
from stemrepro.common.progress import track
from stemrepro.data.integrity import SPLITS, read_corpus, token_type
from stemrepro.data.readers import order
from stemrepro.data.tokenizer import read_tokenizer, token_bytes
from stemrepro.model.config import END_OF_DOCUMENT


def write_blocks(corpus: Path, tokenizer_file: Path, out: Path, train: dict[str, Any] | None = None) -> None:
    """Write `out`/{train,tune,validation}.bin and `out`/index.json.

    Training documents are concatenated in the order of their ids' hashes, so that sources mix; held-out documents are
    grouped by source. Each document ends with END_OF_DOCUMENT. The index holds the vocabulary, the bytes of each token,
    and for held-out splits each document's source, start and length in tokens.

    Args:
        train: the index of a training split that is written already, and of which the corpus holds a sample.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    rows = read_corpus(corpus)
    rows.sort(key=lambda row: order(row["source"], row["id"]))
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
        by_source: dict[str, int] = {}
        for _, source, _, length in documents:
            by_source[source] = by_source.get(source, 0) + length
        hashed = sha256(out / f"{split}.bin")
        index["splits"][split] = {"tokens": start, "tokens_by_source": by_source, "sha256": hashed}
        if split != "train":
            index["splits"][split]["documents"] = documents
    write_json(out / "index.json", index)
