"""All documents of a data mix, from its raw inputs."""

import re
from collections.abc import Iterator
from pathlib import Path

from stemrepro.common.files import damaged, read_rows
from stemrepro.config.mixes import FactsMix, HubMix, Mix, in_the_sample
from stemrepro.config.sources import SOURCES
from stemrepro.data.archives import COUNTRIES, opened
from stemrepro.data.readers import READERS, Document
from stemrepro.data.relations import countries


def hub_documents(mix: HubMix, folder: Path) -> Iterator[Document]:
    """Return one document per row of the dataset.

    Blank lines part its passages, and each passage ends with those after it, so that none is lost.
    """
    for row in read_rows(folder / "documents.jsonl"):
        parts = re.split(r"(\n(?:[^\S\n]*\n)+)", row["text"])
        passages = [part + blank[:-1] for part, blank in zip(parts[::2], [*parts[1::2], "\n"], strict=True)]
        yield Document("hub", row["id"], "", passages)


def read_countries(mix: FactsMix, folder: Path) -> list[dict[str, str]]:
    """Return the countries whose relations are all known, from the factbook or the vendored sample.

    stemrepro.data.relations says which relations there are.

    Raises:
        UserError: the input is missing or damaged.
    """
    if mix.vendored:
        return read_rows(folder / COUNTRIES.name)
    with opened(SOURCES["factbook"]["archive"], folder) as archive:
        return list(countries(archive))


def sample_file(mix: Mix) -> str:
    """Return the file of documents of a mix that has one: the hub's, or the sample's."""
    return f"{mix.file if mix.kind == 'sample' else 'documents'}.jsonl"


def read_documents(mix: Mix, folder: Path) -> Iterator[Document]:
    """Return all documents of a data mix whose raw inputs lie in `folder`, in a fixed order.

    Raises:
        UserError: an input is missing or damaged.
    """
    if mix.kind == "hub" or in_the_sample(mix):
        try:
            if mix.kind == "hub":
                yield from hub_documents(mix, folder)
            else:
                yield from (Document(**row) for row in read_rows(folder / sample_file(mix)))
        except (KeyError, TypeError) as error:
            raise damaged(folder / sample_file(mix), error) from error
        return
    for source in () if mix.kind in ("recall", "invented") else mix.sources:
        with opened(SOURCES[source]["archive"], folder) as archive:
            yield from READERS[source](archive)
