"""The text of a later stage of training: a scale's own text and texts of other kinds, in shares of the tokens.

The paper's mid-training has 65% of the pretraining text, 5% mathematics and 30% code (its Section 4). The scale's own
text keeps its splits, so that what was held out before stays held out. The other texts go through the corpus step by
themselves. Training documents are cut at line ends into pieces of 4 kB or less, or a few long ones would fill a share.
Pieces are taken in the order of their ids' hashes, the last one in part.

Where the scale's own text is in shards, so is the blend: nothing holds it in memory. Its shards have the first tokens
of the own text's shards and of the others' files (stemrepro/data/encoding.py).
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.progress import track
from stemrepro.config.mixes import BlendMix, Mix, is_large
from stemrepro.data.archives import fetch
from stemrepro.data.card import data_card
from stemrepro.data.corpus import build_corpus, write_corpus
from stemrepro.data.encoding import File, check_share, train_index, write_blocks, write_share
from stemrepro.data.integrity import files_of, read_corpus, read_index
from stemrepro.data.large import encode_parts
from stemrepro.data.readers import order
from stemrepro.data.tokenizer import read_tokenizer

PIECE = 4000  # bytes per piece, at most


def pieces(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a document cut at line ends, and within lines that are longer than a piece."""
    lines = (
        line[first : first + PIECE]
        for line in row["text"].splitlines(keepends=True)
        for first in range(0, len(line), PIECE)
    )
    size = number = 0
    kept: list[str] = []
    for line in lines:
        if kept and size + len(line.encode()) > PIECE:
            yield row | {"id": f"{row['id']}#{number}", "text": "".join(kept)}
            kept, size, number = [], 0, number + 1
        kept.append(line)
        size += len(line.encode())
    yield row | {"id": f"{row['id']}#{number}", "text": "".join(kept)}


def so_many(name: str, rows: Iterable[dict[str, Any]], tokens: int, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return pieces of training documents that come to `tokens` tokens, with an end mark each.

    The last one is cut where a token ends. UserError: all pieces come to fewer.
    """
    every = [piece for row in rows if row["split"] == "train" for piece in pieces(row)]
    every.sort(key=lambda row: order(row["source"], row["id"]))
    left, kept = tokens, []
    for first in range(0, len(every), 256):
        part = every[first : first + 256]
        for row, encoded in zip(part, tokenizer.encode_batch([row["text"] for row in part]), strict=True):
            if (length := len(encoded.ids) + 1) > left:
                if left > 1:
                    kept.append(row | {"text": row["text"][: encoded.offsets[left - 2][1]]})
                return kept
            kept.append(row)
            left -= length
    check_share(name, tokens - left, tokens)
    return kept


def _about(report: dict[str, Any]) -> dict[str, Any]:
    sources = list(report["sources"].values())
    return {key: "; ".join(dict.fromkeys(about[key] for about in sources if about[key])) for key in sources[0]}


def files_of_part(part: str, mix: Mix, raw: Path, tokenizer_file: Path, folder: Path) -> list[File]:
    """Write a text's training tokens; return their files."""
    if is_large(mix):
        shards = [written["shard"] for written in encode_parts(raw, tokenizer_file, folder / "shards")]
        return [File(part, folder / "shards" / shard["name"], shard["tokens"]) for shard in shards]
    write_blocks(folder / "corpus.parquet", tokenizer_file, folder / "blocks")
    about = read_index(folder / "blocks")["splits"]["train"]
    return [File(part, folder / "blocks" / file["name"], file["tokens"]) for file in files_of(about, "train")]


def write_shares(mix: BlendMix, tokens: int, tokenizer_file: Path, out: Path, own: Path) -> dict[str, Any]:
    """Write `out`/blocks/<text>-<number>.bin, the blend's training split in shards; return what its index says."""
    index = read_index(own)
    shutil.rmtree(out / "blocks", ignore_errors=True)
    (out / "blocks").mkdir(parents=True)
    shards = index["splits"]["train"]["shards"]
    own_files = [File(shard["name"].rpartition("-")[0], own / shard["name"], shard["tokens"]) for shard in shards]
    texts = [("own", own_files, mix.own)]
    for part, planned in mix.parts.items():
        files = files_of_part(part, planned.mix, out / "raw" / part, tokenizer_file, out / "parts" / part)
        texts.append((part, files, planned.share))
    written = []
    for text, files, share in track(texts, "blending"):
        written += write_share(text, files, round(share * tokens), index["token_bytes"], out / "blocks")
    return train_index(written)


def write_blend(
    name: str,
    mix: BlendMix,
    tokens: int,
    base: Path,
    tokenizer_file: Path,
    out: Path,
    card: Path,
    own: Path | None = None,
) -> None:
    """Write `out`/raw and `out`/parts (the other texts, read and cleaned), `out`/corpus, `out`/blocks, and a data card.

    Args:
        tokens: of the blend's training split, in the scale's vocabulary.
        base: folder of the corpus of the scale itself.
        own: token blocks of the scale itself, where they are in shards; the corpora are then samples.

    UserError: a text can't be read, or is shorter than its share.
    """
    tokenizer, report = read_tokenizer(tokenizer_file), read_json(base / "corpus.json")
    texts, shares = {"own": read_corpus(base / "corpus.parquet")}, {"own": mix.own}
    for part, planned in mix.parts.items():
        if part in report["sources"]:
            raise UserError(f"mix '{name}': the scale's own text has a source '{part}'; give that part another name")
        fetch(planned.mix, out / "raw" / part)
        build_corpus(part, planned.mix, out / "raw" / part, out / "parts" / part)
        texts[part] = [row | {"source": part} for row in read_corpus(out / "parts" / part / "corpus.parquet")]
        shares[part] = planned.share
        other = read_json(out / "parts" / part / "corpus.json")
        report["sources"][part] = _about(other)
        report["documents_read"] += other["documents_read"]
        for reason in ("repeated_passages_only", "near_duplicates"):
            report["removed"][reason] += other["removed"][reason]
        if lost := other["removed"].get("near_duplicate_passages"):
            near = report["removed"].setdefault("near_duplicate_passages", {})
            near[part] = sum(lost.values())
            report["compared"] = "each text within itself"
    rows, train = [], None
    if own:
        rows = [row for every in texts.values() for row in every]
        train = write_shares(mix, tokens, tokenizer_file, out, own)
    else:
        for part, every in track(texts.items(), "blending"):
            rows += [row for row in every if row["split"] != "train"]
            rows += so_many(part, every, round(shares[part] * tokens), tokenizer)
    write_corpus(rows, out / "corpus", report | {"mix": name})
    write_blocks(out / "corpus" / "corpus.parquet", tokenizer_file, out / "blocks", train)
    for part in mix.parts:
        shutil.rmtree(out / "parts" / part / "shards", ignore_errors=True)
    data_card(out, out / "blocks", card)
