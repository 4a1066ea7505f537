"""Corpus of a data mix: clean documents, duplicates removed, split by whole documents.

1. Exact duplicates among passages of 30 characters or more go (the first one in a fixed order stays): most of
   WordNet's synonyms share a definition, and the factbook prints some fields twice.
2. Near-duplicates go: documents of a source (MinHash over word 3-grams, Jaccard 0.8), or, where a mix says so, passages
   across all of its sources (stemrepro.data.near_duplicates). Both happen before anything is held out, so that no split
   repeats another. A mix of facts then takes some of these documents, and repeats its facts on purpose
   (stemrepro.data.atlas). Words are compared, without case. In a user's text symbols are compared too, or `C++` would
   be `C#` and `a + b` be `a - b`. In the archives' corpora they aren't, as results were made of these.
3. Whole documents are held out, in the order of their ids' hashes. Of each source validation gets 8% of the bytes or
   a little more, tune (where learning rates are chosen) the next 4%, and training the rest.

Of a text that memory can't hold the corpus is a sample (stemrepro.data.large).
"""

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json, write_json
from stemrepro.common.progress import track
from stemrepro.config.mixes import Mix, is_large
from stemrepro.config.sources import SOURCES
from stemrepro.data import atlas, invented, needles, recall
from stemrepro.data.atlas import FILE, atlas_documents, chosen, make_atlas
from stemrepro.data.documents import read_countries, read_documents
from stemrepro.data.integrity import SPLITS, TUNE, VALIDATION, store_corpus
from stemrepro.data.invented import invented_documents
from stemrepro.data.large import sample_rows
from stemrepro.data.near_duplicates import near_duplicates
from stemrepro.data.needles import Deal, needle_documents
from stemrepro.data.readers import Document, hash_order
from stemrepro.data.recall import made_up_words, recall_documents
from stemrepro.data.tokenizer import WORDS

DUPLICATE_LENGTH = 30
JACCARD = 0.8
PERMUTATIONS = 64
PLAIN, WITH_SYMBOLS = r"\w+", r"\w+|[^\w\s]"  # what is compared in a text


def _about_sources(mix: Mix) -> dict[str, dict[str, Any]]:
    made = {"facts": atlas, "recall": recall, "invented": invented, "needles": needles}
    if mix.kind == "hub":
        source, title = "hub", (f"{mix.dataset}, {mix.config or 'default'}, {mix.split}", mix.licence, mix.attribution)
    elif mix.kind in made:
        source, title = made[mix.kind].SOURCE, made[mix.kind].TITLE
    else:
        return SOURCES
    return SOURCES | {source: dict(zip(("title", "licence", "attribution"), title, strict=True))}


def assign_splits(documents: list[Document]) -> dict[tuple[str, str], str]:
    """Map (source, id) of each document to its split."""
    sizes = {(d.source, d.id): len(d.text.encode()) for d in documents}
    totals, done = Counter[str](), Counter[str]()
    for (source, _), size in sizes.items():
        totals[source] += size
    tuned, splits = set(), {}
    for document in sorted(documents, key=hash_order):
        source = document.source
        share = done[source] / totals[source]
        # Where documents are few, validation may take more than its share; tune gets at least one all the same.
        split = "validation" if share < VALIDATION else "train"
        if split == "train" and (share < VALIDATION + TUNE or source not in tuned):
            split = "tune"
            tuned.add(source)
        splits[source, document.id] = split
        done[source] += sizes[source, document.id]
    return splits


def drop_repeated_passages(documents: Iterable[Document], compared: str = PLAIN) -> Iterator[Document]:
    """Remove passages seen before, and documents that have nothing else."""
    seen: set[bytes] = set()
    for document in documents:
        kept = []
        for passage in document.passages:
            key = hashlib.sha256(" ".join(re.findall(compared, passage)).casefold().encode()).digest()
            if len(passage) >= DUPLICATE_LENGTH:
                if key in seen:
                    continue
                seen.add(key)
            kept.append(passage)
        if kept:
            yield Document(document.source, document.id, document.head, kept)


def shingles(text: str, compared: str = PLAIN) -> list[bytes]:
    """Return the distinct word 3-grams of a text (the whole text when it is shorter)."""
    words = re.findall(compared, text.casefold())
    return list({" ".join(words[i : i + 3]).encode() for i in range(max(1, len(words) - 2))})


def drop_near_duplicates(documents: Iterable[Document], compared: str = PLAIN) -> Iterator[Document]:
    """Remove documents whose estimated Jaccard similarity with an earlier one of their source is 0.8 or more."""
    from datasketch import MinHash, MinHashLSH  # brings scipy, half a second that asking what is done can do without

    indexes: dict[str, MinHashLSH] = {}
    empty = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=zlib.crc32)
    for document in documents:
        if document.source not in indexes:
            indexes[document.source] = MinHashLSH(threshold=JACCARD, num_perm=PERMUTATIONS)
        index, signature = indexes[document.source], empty.copy()
        signature.update_batch(shingles("\n".join(document.passages), compared))
        if not index.query(signature):
            index.insert(document.id, signature, check_duplication=False)
            yield document


def drop_near_passages(documents: list[Document]) -> tuple[list[Document], dict[str, int]]:
    """Return documents without near-duplicates of earlier passages of any source, and how many each source lost.

    Passages of fewer than 30 characters stay, as they do in `drop_repeated_passages`.
    """
    every = [passage for document in documents for passage in document.passages]
    repeated = iter(near_duplicates([text if len(text) >= DUPLICATE_LENGTH else "" for text in every]))
    kept, lost = [], dict.fromkeys((document.source for document in documents), 0)
    for document in documents:
        passages = [passage for passage in document.passages if not next(repeated)]
        lost[document.source] += len(document.passages) - len(passages)
        if passages:
            kept.append(Document(document.source, document.id, document.head, passages))
    return kept, lost


def some_prose(documents: list[Document], kilobytes: int) -> list[Document]:
    """Return documents up to a size, by hash, none of the factbook: they state facts that a model must not learn."""
    left, kept = 1000 * kilobytes, []
    for document in sorted(documents, key=hash_order):
        size = len(document.text.encode())
        if document.source != "factbook" and size <= left:
            left -= size
            kept.append(document)
    return kept


def made_text(
    mix: Mix, raw: Path, out: Path, prose: list[Document], kept: list[Document]
) -> tuple[list[str], list[tuple[Document, str]]]:
    """Make a mix's own documents, and write the facts of a mix of facts; `kept` are documents that stay as they are.

    Return the words that are to be one token each, and the documents with their splits; of a mix of text alone none.
    """
    if mix.kind == "facts":
        countries = chosen(read_countries(mix, raw), mix.entities, mix.always)
        facts = make_atlas(countries, mix.untold, mix.whole, (document.text for document in kept))
        write_json(out / FILE, asdict(facts))
        return [*facts.words], atlas_documents(facts, mix.repeats)
    if mix.kind == "recall":
        made = recall_documents(mix.keys, mix.values, mix.pairs, mix.length, mix.documents)
        return [*chain(*made_up_words(mix.keys, mix.values))], made
    if mix.kind == "needles":
        deal, plain = Deal.of(mix), set(map(hash_order, kept))
        rest = some_prose([document for document in prose if hash_order(document) not in plain], mix.kilobytes)
        splits = assign_splits(rest)
        texts = {split: [d.text for d in rest if splits[d.source, d.id] == split] for split in SPLITS}
        return [*chain(*deal.words())], needle_documents(texts, deal)
    if mix.kind == "invented":
        vocabulary = invented.words(mix.names, mix.attributes, mix.values)
        made = invented_documents(mix.names, mix.attributes, mix.values, mix.people, mix.exposures)
        return [*chain(*vocabulary.values())], made
    return [], []


def write_corpus(rows: list[dict[str, Any]], out: Path, about: dict[str, Any]) -> None:
    """Write `out`/corpus.parquet, and `out`/corpus.json: `about`, documents, bytes and words by source and split."""
    counts: dict[str, Any] = {}
    for row in rows:
        cells = counts.setdefault(row["source"], {split: {"documents": 0, "bytes": 0, "words": 0} for split in SPLITS})
        sizes = {"documents": 1, "bytes": len(row["text"].encode()), "words": len(row["text"].split())}
        cells[row["split"]] = {key: count + sizes[key] for key, count in cells[row["split"]].items()}
    store_corpus(rows, out / "corpus.parquet")
    about["sources"] = {source: text for source, text in about["sources"].items() if source in counts}
    write_json(out / "corpus.json", about | {"kept": counts})


def build_corpus(name: str, mix: Mix, raw: Path, out: Path) -> None:
    """Write `out`/corpus.parquet (source, id, split, text) and `out`/corpus.json (what was read, dropped and kept).

    UserError: an input is missing or damaged, or a source has no document in one of the splits.
    """
    revision = read_json(raw / "hub.json")["revision"] if mix.kind == "hub" else None
    about = {source: about | {"revision": revision} for source, about in _about_sources(mix).items()}
    if is_large(mix):
        read, none = read_json(raw / "hub.json")["documents"], {"repeated_passages_only": 0, "near_duplicates": 0}
        write_corpus(sample_rows(raw), out, {"mix": name, "sources": about, "documents_read": read, "removed": none})
        return
    documents = list(track(read_documents(mix, raw), "reading"))
    compared = WITH_SYMBOLS if mix.kind == "hub" else PLAIN
    unique = list(drop_repeated_passages(documents, compared))
    removed: dict[str, Any] = {"repeated_passages_only": len(documents) - len(unique)}
    if mix.kind == "archives" and mix.near_duplicates == "passages":
        kept, removed["near_duplicate_passages"] = drop_near_passages(unique)
    else:
        kept = list(drop_near_duplicates(track(unique, "near duplicates"), compared))
    removed["near_duplicates"] = len(unique) - len(kept)
    prose = kept
    if mix.kind in ("facts", "needles"):
        kept = some_prose(prose, mix.kilobytes if mix.kind == "facts" else mix.plain)
    splits = assign_splits(kept)
    words, made = made_text(mix, raw, out, prose, kept)
    for document, split in made:
        kept.append(document)
        splits[document.source, document.id] = split
    if words:
        write_json(out / WORDS, {"words": words, "made": sorted({document.source for document, _ in made})})
    rows = [{"source": d.source, "id": d.id, "split": splits[d.source, d.id], "text": d.text} for d in kept]
    filled = dict.fromkeys((row["source"], row["split"]) for row in rows)
    for source in dict.fromkeys(source for source, _ in filled):
        if missing := [split for split in SPLITS if (source, split) not in filled]:
            read, left = (sum(document.source == source for document in every) for every in (documents, prose))
            raise UserError(
                f"{raw}: source '{source}' has no document for {' and '.join(missing)} (read: {read:,}, dropped as "
                f"repeats: {read - left:,}); a document is in one split as a whole, so add some that differ, or cut "
                "long ones into several"
            )
    write_corpus(rows, out, {"mix": name, "sources": about, "documents_read": len(documents), "removed": removed})
