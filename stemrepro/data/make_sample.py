"""Maker of the vendored sample: short, whole public-domain documents, 300 kB or less in all.

It has documents from three sources, the facts about some countries, and a little mathematics and code. The folder must
hold the archives of these sources.

    python -m stemrepro.data.make_sample data/text/raw

It goes through the same corpus, tokenizer and block steps as the full mix, and needs no network.
"""

import json
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

from stemrepro.common.files import atomic_write
from stemrepro.config.mixes import ArchiveMix
from stemrepro.config.sources import SOURCES
from stemrepro.data.archives import COUNTRIES, SAMPLE, pinned
from stemrepro.data.documents import read_documents
from stemrepro.data.readers import hash_order, order
from stemrepro.data.relations import countries

LIMITS = {"speeches": 110_000, "factbook": 85_000, "bible": 100_000}
OTHERS = {"mathematics": 20_000, "code": 60_000}
"""Other kinds of text, with a file each."""
LONGEST = 16_000
ENTITIES = 24


def write_documents(limits: dict[str, int], raw: Path, longest: int, out: Path) -> None:
    """Write documents of at most `longest` bytes, in hash order, until each source's share is full."""
    left, chosen = dict(limits), []
    for document in sorted(read_documents(ArchiveMix(kind="archives", sources=tuple(limits)), raw), key=hash_order):
        size = len(json.dumps(asdict(document), ensure_ascii=False).encode()) + 1
        if size <= min(longest, left[document.source]):
            left[document.source] -= size
            chosen.append(document)
    lines = [json.dumps(asdict(document), ensure_ascii=False) for document in chosen]
    atomic_write(out, "\n".join(lines) + "\n")


def main() -> None:
    """Write the sample's files."""
    raw = Path(sys.argv[1])
    write_documents(LIMITS, raw, LONGEST, SAMPLE)
    for source, limit in OTHERS.items():
        write_documents({source: limit}, raw, limit // 10, SAMPLE.with_name(f"{source}.jsonl"))
    archive = next(archive for archive in pinned() if archive.name == SOURCES["factbook"]["archive"])
    with zipfile.ZipFile(archive.path(raw)) as opened:
        facts = sorted(countries(opened), key=lambda country: order(country["name"]))
    atomic_write(COUNTRIES, "".join(f"{json.dumps(country, ensure_ascii=False)}\n" for country in facts[:ENTITIES]))


if __name__ == "__main__":
    main()
