"""Needles in prose: words with values, between the clauses of real text, which come again further on.

    ... and the waters prevailed, bako midu. tofa resi. upon the earth; tofa resi. and all flesh ...

Keys and values are words of one token each, drawn at random in every document. So where a key comes again, only the
context tells its value. Some documents are keys and values alone: without them a model of our size never learns the
task.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from stemrepro.config.mixes import NeedlesMix
from stemrepro.data.readers import Document
from stemrepro.data.recall import made_up_words

SOURCE = "needles"
BARE = "-bare"  # end of the ids of documents without prose
TITLE = (
    "Prose with words and values between its clauses, drawn by chance",
    "public domain, as the prose that it is made of",
    "prose of the same mix; words by stemrepro",
)


def question(key: str) -> str:
    """Return a needle up to its value."""
    return f" {key}"


def needle(key: str, value: str) -> str:
    """Return a key and its value, as they are after a clause."""
    return f"{question(key)} {value}."


def clauses(text: str) -> list[str]:
    """Return a text's clauses, each with a space before it; a clause without a mark at its end gets a full stop."""
    parts = [part.strip() for part in re.split(r"(?<=[,.;:!?])\s+", text)]
    return [f" {part}" if part[-1] in ",.;:!?" else f" {part}." for part in parts if part]


def prose_of(text: str, keys: Iterable[str]) -> str:
    """Return a document's prose, without its needles."""
    return re.sub(rf" (?:{'|'.join(keys)}) [a-z]+\.", "", text)


@dataclass(frozen=True)
class Deal:
    """How documents are made: how many words are keys, how many values, and more of recipes/mixes.yaml."""

    keys: int
    values: int
    of_document: tuple[int, ...]
    clauses: int
    needles: int
    bare: float

    @classmethod
    def of(cls, mix: NeedlesMix) -> "Deal":
        """Return a mix's settings of it."""
        return cls(**{field.name: getattr(mix, field.name) for field in fields(cls)})

    def words(self) -> tuple[list[str], list[str]]:
        """Return keys and values."""
        return made_up_words(self.keys, self.values)

    def some(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw `count` different keys and their values, by number, [count] each."""
        return rng.choice(self.keys, count, replace=False), rng.integers(self.values, size=count)


def documents_of(prose: Iterable[str], rng: np.random.Generator, deal: Deal) -> Iterator[tuple[bool, str]]:
    """Yield documents until the prose is used up (its last clauses are dropped), each with whether it is bare."""
    names, answers = deal.words()
    left: list[str] = []
    for text in prose:
        left += clauses(text)
        while len(left) >= deal.clauses:
            count = int(rng.choice(deal.of_document))
            key, value = deal.some(rng, count)
            dealt = [(names[k], answers[v]) for k, v in zip(key, value, strict=True)]
            if rng.random() < deal.bare:
                turns = rng.integers(count, size=deal.clauses * deal.needles)
                yield True, "".join(f" {dealt[k][0]} {dealt[k][1]}" for k in turns)
                continue
            after = [rng.integers(count, size=rng.integers(1, deal.needles + 1)) for _ in range(deal.clauses)]
            pairs = zip(left[: deal.clauses], after, strict=True)
            yield False, "".join(clause + "".join(needle(*dealt[k]) for k in turns) for clause, turns in pairs)
            left = left[deal.clauses :]


def needle_documents(prose: dict[str, list[str]], deal: Deal) -> list[tuple[Document, str]]:
    """Return documents with their splits, made of texts by split."""
    return [
        (Document(SOURCE, f"{split}/{k:06d}{BARE if bare else ''}", "", [text]), split)
        for seed, (split, texts) in enumerate(prose.items())
        for k, (bare, text) in enumerate(documents_of(texts, np.random.default_rng(seed), deal))
    ]
