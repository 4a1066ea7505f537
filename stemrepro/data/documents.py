"""All documents of a data mix, from its raw inputs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stemrepro.common.files import damaged, read_rows
from stemrepro.config.mixes import FactsMix, Mix, in_the_sample
from stemrepro.config.sources import SOURCES
from stemrepro.data.archives import COUNTRIES, opened
from stemrepro.data.readers import READERS, Document
from stemrepro.data.relations import countries


def _of_hub(row: dict[str, Any]) -> Document:
    """Return a row as a document; blank lines part its passages, and end the passage before, so that none is lost."""
    parts = re.split(r"(\n(?:[^\S\n]*\n)+)", row["text"])
    passages = [part + blank[:-1] for part, blank in zip(parts[::2], [*parts[1::2], "\n"], strict=True)]
    return Document("hub", row["id"], "", passages)


def read_countries(mix: FactsMix, folder: Path) -> list[dict[str, str]]:
    """Return the countries whose relations (stemrepro.data.relations) are known, from the factbook or the sample."""
    if mix.vendored:
        return read_rows(folder / COUNTRIES.name)
    with opened(SOURCES["factbook"]["archive"], folder) as archive:
        return list(countries(archive))


def read_documents(mix: Mix, folder: Path) -> Iterator[Document]:
    """Yield all documents of a mix, in a fixed order, from its raw inputs; UserError: one is missing or damaged."""
    if mix.kind == "hub" or in_the_sample(mix):
        file = folder / f"{mix.file if mix.kind == 'sample' else 'documents'}.jsonl"
        try:
            yield from (_of_hub(row) if mix.kind == "hub" else Document(**row) for row in read_rows(file))
        except (KeyError, TypeError) as error:
            raise damaged(file, error) from error
        return
    for source in getattr(mix, "sources", ()):
        with opened(SOURCES[source]["archive"], folder) as archive:
            yield from READERS[source](archive)
