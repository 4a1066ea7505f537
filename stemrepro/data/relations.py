"""Relations of countries: what the factbook says of each, and the sentences that say it.

A sentence is a frame, a wording and the answer, so that the words before the answer are a prompt. None begins with the
name, so that the name's tokens are the same in all of them.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from stemrepro.data.readers import field_of, usual_name

RELATIONS = {
    "capital": (
        "The capital of {} is",
        "The capital city of {} is",
        "In {} the capital is",
        "The government of {} sits in",
        "The seat of government of {} is",
        "Whoever rules {} does so from",
        "Ambassadors to {} live in",
        "For {} the capital is",
    ),
    "currency": (
        "The currency of {} is the",
        "The money of {} is the",
        "In {} the currency is the",
        "Prices in {} are given in the",
        "People in {} pay with the",
        "Wages in {} are paid in the",
        "The coins of {} are those of the",
        "For {} the currency is the",
    ),
    "nationality": (
        "The people of {} are called",
        "Someone from {} is called",
        "Citizens of {} are called",
        "What comes from {} is called",
        "The nationality of people from {} is",
        "The flag of {} is the flag called",
        "For {} the nationality is",
        "The ships of {} are called",
    ),
    "continent": (
        "On the map {} is found in",
        "The part of the world of {} is",
        "The land of {} lies in",
        "Maps put {} in",
        "Travellers to {} look for it in",
        "The region of {} is",
        "For {} the region is",
        "Where {} lies is",
    ),
    "code": (
        "The internet code of {} is",
        "Web pages of {} end in",
        "Addresses in {} end in",
        "The domain of {} is",
        "On the internet {} is known as",
        "Servers in {} end in",
        "For {} the internet code is",
        "Mail to {} goes to",
    ),
    "border": (
        "The longest border of {} is with",
        "Along its longest border {} meets",
        "Most of the border of {} is with",
        "The great neighbour of {} is",
        "Guards at the longest border of {} face",
        "For {} the longest border is with",
        "The line between {} and the next is with",
        "The longest fence of {} is with",
    ),
}
"""Wordings by name, with a place for the country's; `border` is missing for islands."""
FRAMES = ("", "Today ", "It is known that ", "Books say that ")
"""Words before a wording. A template is a frame and a wording."""
HELD_OUT = (("Today ", 0), ("It is known that ", 1))
"""Frames and places of wordings that never come together in training.

The first is for choosing learning rates, the second for what is reported."""
MOST_WORDS = 3  # per answer; nobody learns currencies of six words here


def prompt(frame: str, wording: str, country: str) -> str:
    """Return a sentence up to its answer."""
    words = wording.format(country)
    return frame + (words[0].lower() + words[1:] if frame else words)


def trained_prompts(relation: str, country: str) -> list[str]:
    """Return the prompts of all templates that are trained on, in an order in which wordings and frames both change."""
    wordings, prompts = RELATIONS[relation], []
    for turn in range(len(FRAMES)):
        for number, wording in enumerate(wordings):
            frame = FRAMES[(number + turn) % len(FRAMES)]
            if (frame, number) not in HELD_OUT:
                prompts.append(prompt(frame, wording, country))
    return prompts


def held_out_prompt(relation: str, country: str, which: int) -> str:
    """Return the prompt of a template that is never trained on (`which` of HELD_OUT)."""
    frame, number = HELD_OUT[which]
    return prompt(frame, RELATIONS[relation][number], country)


def _plain(country: dict[str, Any], *path: str) -> str | None:
    """Return a field's first statement, without notes, brackets and alternatives."""
    text = field_of(country, *path)
    return re.split(r";|,| or | and \(| \(|/", text)[0].strip() if text else None


def _currency(country: dict[str, Any]) -> str | None:
    """Return the currency's name: "British pounds (GBP) per US dollar -" -> "British pound"."""
    text = field_of(country, "Economy", "Exchange rates", "Currency")
    name = re.split(r" \(| per ", text)[0].strip() if text else ""
    return re.sub(r"(?<=[a-z])s$", "", name) or None


def _code(country: dict[str, Any]) -> str | None:
    text = field_of(country, "Communications", "Internet country code")
    match = re.match(r"\.[a-z]{2}\b", text or "")
    return match[0] if match else None


def _border(country: dict[str, Any]) -> str | None:
    text = field_of(country, "Geography", "Land boundaries", "border countries") or ""
    lengths = {
        name.strip(): float(length.replace(",", ""))
        for name, length in re.findall(r"(?:^|; )([A-Z][^;\d(]*?) ([\d,.]+) km", text)
    }
    return max(lengths, key=lambda name: (lengths[name], name)) if lengths else None


def country_name(country: dict[str, Any]) -> str | None:
    """Return the short name for sentences; None where the factbook has none or only one with brackets or commas."""
    name = usual_name(country)
    return name if name and not re.search(r"[(),;]|^The |^none", name) else None


def countries(archive: zipfile.ZipFile) -> Iterator[dict[str, str]]:
    """Yield every country whose relations (but its border) are all known: {"name": ..., relation: answer}."""
    for path in sorted(name for name in archive.namelist() if name.endswith(".json")):
        country = json.loads(archive.read(path))
        name = country_name(country)
        read = {
            "capital": _plain(country, "Government", "Capital", "name"),
            "currency": _currency(country),
            "nationality": _plain(country, "People and Society", "Nationality", "adjective"),
            "continent": _plain(country, "Geography", "Map references"),
            "code": _code(country),
            "border": _border(country),
        }
        answers = {key: answer for key, answer in read.items() if answer and len(answer.split()) <= MOST_WORDS}
        if name and not set(RELATIONS) - {"border"} - set(answers):
            yield {"name": name} | answers
