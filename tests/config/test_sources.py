"""The table of sources, and which of a mix are prose."""

from stemrepro.config.sources import PROSE, SOURCES, prose
from stemrepro.data.archives import pinned


def test_prose_names_sources_and_every_source_is_pinned():
    assert set(PROSE) <= set(SOURCES)
    assert {about["archive"] for about in SOURCES.values()} == {archive.name for archive in pinned()}


def test_headline_losses_are_of_prose(catalog):
    assert prose(catalog.mixes["text"].sources) == ("speeches", "bible")
    assert prose(catalog.mixes["text-8"].sources) == ("speeches", "bible", "plays", "passages")
    assert prose(["hub"]) == ("hub",)
