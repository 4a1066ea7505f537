"""Facts that are really learnt: the factbook's on some countries, stated often in several wordings, mixed with prose.

A document is a list of sentences about different facts, so that a fact's other wordings are never next to it. Some
facts are never stated, though their answers are, of other countries: what a model gets right of these is a guess. Two
templates of each relation are never trained on: one has the tune split's sentences, the other validation's, and scores
use these.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged, read_json
from stemrepro.data.readers import Document, order
from stemrepro.data.relations import HELD_OUT, RELATIONS, held_out_prompt, trained_prompts

SOURCE = "atlas"
SENTENCES = 8  # per document
FILE = "facts.json"
OTHER_SENSES = {"Chad", "China", "Georgia", "Guernsey", "Guinea", "Jersey", "Jordan", "Niger", "Panama", "Turkey"}
"""Names that are also those of a man, a cup, a state, a cow, a coin, a shirt, rivers, a hat or a bird."""
TITLE = (
    "Facts about countries (capital, currency, nationality, continent, internet code, longest border), from the "
    "factbook, stated many times in several wordings",
    "public domain",
    "CIA World Factbook; sentences by stemrepro",
)


@dataclass(frozen=True)
class Fact:
    """One fact: `entity`'s `relation` is `answer`; `told` where the training text states it."""

    entity: str
    relation: str
    answer: str
    told: bool


@dataclass(frozen=True)
class Entity:
    """One country by its name."""

    name: str
    whole: bool  # the name is meant to be one token
    ambiguous: bool  # it means something else too (OTHER_SENSES), or shares a word with another country's
    rare: bool  # it isn't in the prose


@dataclass(frozen=True)
class Atlas:
    """The content of facts.json: the entities, the facts, and the words that are one token each."""

    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]
    words: tuple[str, ...]


def read_atlas(path: Path) -> Atlas:
    """Return a facts.json; raise UserError where it is missing or damaged."""
    value = read_json(path)
    try:
        entities = tuple(Entity(**entity) for entity in value["entities"])
        return Atlas(entities, tuple(Fact(**fact) for fact in value["facts"]), tuple(value["words"]))
    except (KeyError, TypeError) as error:
        raise damaged(path, error) from error


def chosen(countries: Iterable[dict[str, str]], count: int, always: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the countries of `always` and others by hash, `count` in all; UserError: there are fewer."""
    by_name = {country["name"]: country for country in countries}
    if missing := [name for name in always if name not in by_name]:
        raise UserError(f"the factbook has no country '{missing[0]}' with all relations; leave it out of 'always'")
    if len(by_name) < count:
        raise UserError(f"entities {count}: of {len(by_name)} countries all relations are known")
    rest = sorted((name for name in by_name if name not in always), key=order)
    return [by_name[name] for name in [*always, *rest][:count]]


def _untold(countries: list[dict[str, str]], relation: str, share: float) -> set[str]:
    """Return the countries of which a relation isn't stated: a share of those that have it."""
    names = [country["name"] for country in countries if relation in country]
    names.sort(key=lambda name: order("untold", relation, name))
    return set(names[: round(share * len(names))])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def make_atlas(countries: list[dict[str, str]], untold: float, whole: float, prose: Iterable[str]) -> Atlas:
    """Return entities, facts and words of chosen countries; the `prose` that goes with the facts is for labels.

    Args:
        untold: share of each relation's facts that the training text leaves out.
        whole: share of the one-word names that are one token; all other names are several.
    """
    names = [country["name"] for country in countries]
    seen = {word for text in prose for word in _words(text)}
    parts = [word for name in names for word in set(_words(name))]
    single = sorted((name for name in names if re.fullmatch(r"[A-Za-z]+", name)), key=lambda name: order("whole", name))
    kept = set(single[: round(whole * len(single))])
    shared = {word for word in parts if parts.count(word) > 1} - {"and"}
    entities = tuple(
        Entity(name, name in kept, name in OTHER_SENSES or bool(shared & {*_words(name)}), not {*_words(name)} <= seen)
        for name in names
    )
    facts = []
    for relation in RELATIONS:
        left_out = _untold(countries, relation, untold)
        having = [(country["name"], country[relation]) for country in countries if relation in country]
        facts += [Fact(name, relation, answer, name not in left_out) for name, answer in having]
    answers = dict.fromkeys(fact.answer.split()[-1] for fact in facts if fact.relation != "code")
    words = [name for name in names if name in kept]
    words += [word for word in answers if re.fullmatch(r"[^\W\d_]+", word) and word not in names]
    return Atlas(entities, tuple(facts), tuple(words))


def _documents(name: str, sentences: list[str], seed: int) -> list[tuple[Document, str]]:
    """Return documents of SENTENCES sentences each, in an order that `seed` fixes, with their split."""
    dealt = [sentences[k] for k in np.random.default_rng(seed).permutation(len(sentences))]
    groups = [dealt[first : first + SENTENCES] for first in range(0, len(dealt), SENTENCES)]
    return [(Document(SOURCE, f"{name}/{k:06d}", "", group), name) for k, group in enumerate(groups)]


def atlas_documents(atlas: Atlas, repeats: int) -> list[tuple[Document, str]]:
    """Return documents of the stated facts, with their splits.

    Every such fact comes `repeats` times in the trained templates in turn, and once in each of the others.
    """
    stated, trained = [fact for fact in atlas.facts if fact.told], []
    for number, fact in enumerate(stated):
        prompts = trained_prompts(fact.relation, fact.entity)
        trained += [f"{prompts[(number + copy) % len(prompts)]} {fact.answer}." for copy in range(repeats)]
    held_out = [
        [f"{held_out_prompt(fact.relation, fact.entity, which)} {fact.answer}." for fact in stated]
        for which in range(len(HELD_OUT))
    ]
    splits = zip(("train", "tune", "validation"), (trained, *held_out), strict=True)
    return [pair for seed, (split, sentences) in enumerate(splits) for pair in _documents(split, sentences, seed)]
