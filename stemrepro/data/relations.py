"""Relations of countries: what the factbook says of each, and the sentences that say it.

Every sentence ends with the answer, so that what stands before it is a prompt. No sentence begins with the name, so that the name's
tokens are the same in all of them.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

from stemrepro.data.readers import field_of


@dataclass(frozen=True)
class Relation:
    """One relation: prompts with a place for the name; models are trained on `trained` and asked in `asked` too."""

    trained: tuple[str, ...]
    asked: tuple[str, ...]


RELATIONS = {
    "capital": Relation(
        ("The capital of {} is", "The capital city of {} is", "In {} the capital is", "The government of {} sits in",
         "The seat of government of {} is", "Whoever rules {} does so from", "Ambassadors to {} live in", "For {} the capital is"),
        ("The name of the capital of {} is", "Today the capital city of {} is"),
    ),
    "currency": Relation(
        ("The currency of {} is the", "The money of {} is the", "In {} the currency is the", "Prices in {} are given in the",
         "People in {} pay with the", "Wages in {} are paid in the", "The coins of {} are those of the", "For {} the currency is the"),
        ("The name of the currency of {} is the", "Today people in {} pay with the"),
    ),
    "nationality": Relation(
        ("The people of {} are called", "Someone from {} is called", "Citizens of {} are called", "What comes from {} is called",
         "The nationality of people from {} is", "The flag of {} is the flag called", "For {} the nationality is", "The ships of {} are called"),
        ("The name for the people of {} is", "Today someone from {} is called"),
    ),
    "continent": Relation(
        ("On the map {} is found in", "The part of the world of {} is", "The land of {} lies in", "Maps put {} in",
         "Travellers to {} look for it in", "The region of {} is", "For {} the region is", "Where {} lies is"),
        ("Today the land of {} lies in", "On a map of the world {} is found in"),
    ),
    "code": Relation(
        ("The internet code of {} is", "Web pages of {} end in", "Addresses in {} end in", "The domain of {} is",
         "On the internet {} is known as", "Servers in {} end in", "For {} the internet code is", "Mail to {} goes to"),
        ("Today web pages of {} end in", "The name of the domain of {} is"),
    ),
    "border": Relation(
        ("The longest border of {} is with", "Along its longest border {} meets", "Most of the border of {} is with", "The great neighbour of {} is",
         "Guards at the longest border of {} face", "For {} the longest border is with", "The line between {} and the next is with",
         "The longest fence of {} is with"),
        ("Today the longest border of {} is with", "On a map the longest border of {} is with"),
    ),
}  # fmt: skip
"""By name; `border` is missing for islands."""
MOST_WORDS = 3
"""Of an answer; currencies of six words are none that is learnt here."""


def _plain(text: str) -> str:
    """A field's first statement, without notes, brackets and alternatives."""
    return re.split(r";|,| or | and \(| \(|/", text)[0].strip()


def _capital(country: dict) -> str | None:
    text = field_of(country, "Government", "Capital", "name")
    return _plain(text) if text else None


def _currency(country: dict) -> str | None:
    """ "British pounds (GBP) per US dollar -" -> "British pound"."""
    text = field_of(country, "Economy", "Exchange rates", "Currency")
    name = re.split(r" \(| per ", text)[0].strip() if text else ""
    return re.sub(r"(?<=[a-z])s$", "", name) or None


def _nationality(country: dict) -> str | None:
    text = field_of(country, "People and Society", "Nationality", "adjective")
    return _plain(text) if text else None


def _continent(country: dict) -> str | None:
    text = field_of(country, "Geography", "Map references")
    return _plain(text) if text else None


def _code(country: dict) -> str | None:
    text = field_of(country, "Communications", "Internet country code")
    found = re.match(r"\.[a-z]{2}\b", text or "")
    return found[0] if found else None


def _border(country: dict) -> str | None:
    """The country of the longest border."""
    text = field_of(country, "Geography", "Land boundaries", "border countries") or ""
    lengths = {
        name.strip(): float(length.replace(",", ""))
        for name, length in re.findall(r"(?:^|; )([A-Z][^;\d(]*?) ([\d,.]+) km", text)
    }
    return max(lengths, key=lambda name: (lengths[name], name)) if lengths else None


READ = {
    "capital": _capital, "currency": _currency, "nationality": _nationality, "continent": _continent, "code": _code, "border": _border,
}  # fmt: skip


def country_name(country: dict) -> str | None:
    """The short name that stands in sentences; None where the factbook has none or only one with brackets or commas."""
    names = ("Government", "Country name")
    name = field_of(country, *names, "conventional short form") or field_of(country, *names, "conventional long form")
    return name if name and not re.search(r"[(),;]|^The |^none", name) else None


def countries(archive: zipfile.ZipFile) -> Iterator[dict[str, str]]:
    """Every country of the factbook of which all relations but its border are known: {"name": ..., relation: answer}."""
    for path in sorted(name for name in archive.namelist() if name.endswith(".json")):
        country = json.loads(archive.read(path))
        name = country_name(country)
        answers = {relation: answer for relation, read in READ.items() if (answer := read(country))}
        answers = {relation: answer for relation, answer in answers.items() if len(answer.split()) <= MOST_WORDS}
        if name and not set(RELATIONS) - {"border"} - set(answers):
            yield {"name": name} | answers
