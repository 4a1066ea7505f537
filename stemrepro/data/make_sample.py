"""Makes the vendored sample: short, whole public-domain documents from three sources, 300 kB or less, and the facts about some countries.

    python -m stemrepro.data.make_sample data/text/raw

It goes through the same corpus, tokenizer and block steps as the full mix, and needs no network.
"""

import json
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

from stemrepro.data.archives import COUNTRIES, SAMPLE, pinned
from stemrepro.data.corpus import hash_order
from stemrepro.data.documents import read_documents
from stemrepro.data.items import order
from stemrepro.data.mixes import ArchiveMix
from stemrepro.data.relations import countries
from stemrepro.data.sources import SOURCES
from stemrepro.files import atomic_write

LIMITS = {"speeches": 110_000, "factbook": 85_000, "bible": 100_000}
LONGEST = 16_000
ENTITIES = 24


def main() -> None:
    """Takes documents of at most 16 kB in hash order until each source's share is full."""
    left, chosen = dict(LIMITS), []
    candidates = read_documents(ArchiveMix(kind="archives", sources=tuple(LIMITS)), Path(sys.argv[1]))
    for document in sorted(candidates, key=hash_order):
        size = len(json.dumps(asdict(document), ensure_ascii=False).encode()) + 1
        if size <= min(LONGEST, left[document.source]):
            left[document.source] -= size
            chosen.append(document)
    lines = [json.dumps(asdict(document), ensure_ascii=False) for document in chosen]
    atomic_write(SAMPLE, "\n".join(lines) + "\n")
    archive = next(archive for archive in pinned() if archive.name == SOURCES["factbook"]["archive"])
    with zipfile.ZipFile(archive.path(Path(sys.argv[1]))) as opened:
        known = sorted(countries(opened), key=lambda country: order(country["name"]))
    atomic_write(COUNTRIES, "".join(f"{json.dumps(country, ensure_ascii=False)}\n" for country in known[:ENTITIES]))


if __name__ == "__main__":
    main()
