"""What a text needs of token-indexed tables, counted without any model: distinct tokens by length, hits of row caches.

There are two vocabularies: the model's, which is too small to be interesting, and a larger one nearer the paper's
(section 3, "dynamic capacity", and the systems text). The files are small enough for git: distinct.csv (a line per
window of text and length) and cache.csv (a line per stretch of text, cache size and policy).
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cachetools import Cache, LFUCache, LRUCache

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.progress import track
from stemrepro.config.scale import Counting
from stemrepro.data.integrity import read_corpus
from stemrepro.data.readers import order
from stemrepro.data.tokenizer import read_tokenizer, train_tokenizer
from stemrepro.model.config import END_OF_DOCUMENT

SHORTEST = 16
FEWEST_WINDOWS = 8
MOST_WINDOWS = 128
CACHE_SHARES = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 10, 1 / 8, 1 / 4)  # rows that a cache holds / rows of the table
CHUNK = 128  # tokens of a prefill chunk in the official offload engine; distinct ones among them are fetched once
STRETCHES = 8  # parts of a stream whose hit rates are averaged, after a first one that fills the cache


def streams(corpus: Path, tokenizer_file: Path) -> dict[str, np.ndarray]:
    """Return each source's documents of all splits, by their ids' hashes, as one row: {source: int64 [tokens]}."""
    tokenizer = read_tokenizer(tokenizer_file)
    rows = sorted(read_corpus(corpus), key=lambda row: order(row["source"], row["id"]))
    tokens_of = {}
    for source in sorted({row["source"] for row in rows}):
        texts = [row["text"] for row in rows if row["source"] == source]
        parts = [
            ids
            for first in track(range(0, len(texts), 512), f"encoding {source}")
            for encoded in tokenizer.encode_batch(texts[first : first + 512])
            for ids in (encoded.ids, [END_OF_DOCUMENT])
        ]
        tokens_of[source] = np.concatenate(parts).astype(np.int64)
    return tokens_of


def lengths(tokens: int, longest: int) -> list[int]:
    """Return powers of two from SHORTEST up to the longest of which the stream has at least FEWEST_WINDOWS."""
    return [n for n in (2**k for k in range(4, 31)) if SHORTEST <= n <= min(longest, tokens // FEWEST_WINDOWS)]


def distinct_tokens(stream: np.ndarray, longest: int) -> pd.DataFrame:
    """Count distinct tokens among the first n of windows that lie evenly spread, for every length n.

    UserError: the text is too short for FEWEST_WINDOWS windows of SHORTEST tokens.
    """
    sizes = lengths(len(stream), longest)
    if not sizes:
        raise UserError(f"{len(stream)} tokens are too few to count in: {FEWEST_WINDOWS * SHORTEST} are needed")
    windows = stream[: len(stream) // sizes[-1] * sizes[-1]].reshape(-1, sizes[-1])
    chosen = np.unique(np.linspace(0, len(windows) - 1, MOST_WINDOWS).round().astype(int))
    rows = []
    for window in chosen:
        firsts = np.sort(np.unique(windows[window], return_index=True)[1])
        rows += [(int(window), n, int(np.searchsorted(firsts, n))) for n in sizes]
    return pd.DataFrame(rows, columns=["window", "length", "distinct"])


def hits(cache: Cache[Any, Any], keys: np.ndarray) -> np.ndarray:
    """Return which accesses find their row in the cache, bool [accesses]; a miss fetches it."""
    hit = np.empty(len(keys), bool)
    for place, key in enumerate(keys.tolist()):
        hit[place] = key in cache
        if hit[place]:
            cache[key]  # the access that LFU and LRU count
        else:
            cache[key] = None
    return hit


def static_hits(keys: np.ndarray, size: int, vocab: int) -> np.ndarray:
    """Return the same for a cache of the stream's own most frequent tokens: no other that never changes does better."""
    best = np.argsort(-np.bincount(keys, minlength=vocab), kind="stable")[:size]
    return np.isin(keys, best)


def chunk_keys(stream: np.ndarray) -> np.ndarray:
    """Return the distinct tokens of each chunk of CHUNK tokens, in a row: what is left after de-duplication."""
    chunks = stream[: len(stream) // CHUNK * CHUNK].reshape(-1, CHUNK)
    return np.concatenate([np.unique(chunk) for chunk in chunks])


def cache_rows(stream: np.ndarray, vocab: int, name: str) -> Iterator[dict[str, Any]]:
    """Return hit rates by policy, size and kind of request, a line per stretch of the stream."""
    for requests, keys in (("every token", stream), ("distinct in a chunk", chunk_keys(stream))):
        parts = np.array_split(np.arange(len(keys)), STRETCHES + 1)[1:]
        for share in track(CACHE_SHARES, f"caches for {name}, {requests}"):
            size = max(1, round(share * vocab))
            runs = {"LRU": hits(LRUCache(size), keys), "LFU": hits(LFUCache(size), keys)}
            runs["static-best"] = static_hits(keys, size, vocab)
            for policy, hit in runs.items():
                for number, part in enumerate(parts):
                    about = {"asked": requests, "policy": policy, "rows": size, "share": share}
                    yield about | {"stretch": number, "hit_rate": hit[part].mean()}


def write_counts(corpus: Path, tokenizer_file: Path, settings: Counting, out: Path) -> None:
    """Write distinct.csv and cache.csv of the model's vocabulary and a larger one, which is trained on the same text.

    UserError: too little text for the larger vocabulary or for the windows.
    """
    with tempfile.TemporaryDirectory() as folder:
        larger = Path(folder) / "tokenizer.json"
        train_tokenizer(corpus, settings.vocab, larger)
        distinct, cache = [], []
        for file in (tokenizer_file, larger):
            vocab = read_tokenizer(file).get_vocab_size()
            for source, stream in streams(corpus, file).items():
                distinct.append(distinct_tokens(stream, settings.length).assign(vocab=vocab, source=source))
                if file == larger:
                    rows = pd.DataFrame(cache_rows(stream[: settings.cache_tokens], vocab, source))
                    cache.append(rows.assign(vocab=vocab, source=source))
    for name, tables in (("distinct", distinct), ("cache", cache)):
        table = pd.concat(tables)
        columns = ["vocab", "source", *(c for c in table.columns if c not in ("vocab", "source"))]
        atomic_write(out / f"{name}.csv", table[columns].to_csv(index=False, float_format="%.6g"))
