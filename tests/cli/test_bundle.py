"""A bundle holds what git has of a commit, byte for byte, and is the same however the clone was made."""

import hashlib
import json
import os
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from stemrepro.cli.bundle import write_bundle
from stemrepro.common.errors import UserError
from tests.conftest import ROOT

WHEN = "2026-11-24T23:59:59 -1100"  # the day after, in UTC
IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "t"), ("EMAIL", "t@t"), ("DATE", WHEN))}  # fmt: skip
NAMES = {"MANIFEST.sha256", "COMMIT", ".zenodo.json"}


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, env=os.environ | IDENTITY).stdout


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Files of several kinds, committed; and one that git is told to leave out."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / name, name)
    Path("deep/er").mkdir(parents=True)
    Path("deep/er/bytes.npz").write_bytes(bytes(range(256)) + b"\r\n\n")
    Path("Ünicode name.txt").write_text("text\nlines\n")
    Path("empty").touch()
    Path("run").write_text("#!/bin/sh\n")
    Path("run").chmod(0o755)
    Path(".gitignore").write_text("/bundle/\n/ignored\n")
    Path("ignored").write_text("never committed")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    return folder


def test_a_bundle_holds_what_git_has(repository):
    done = write_bundle()
    head = git("rev-parse", "HEAD").decode().strip()
    prefix = f"stemrepro-0.1.0-{head[:7]}"
    assert done.path == Path(f"bundle/{prefix}.zip")
    whole = done.path.read_bytes()
    assert (done.size, done.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    with zipfile.ZipFile(done.path) as archive:
        held = {entry.filename.removeprefix(f"{prefix}/"): archive.read(entry) for entry in archive.infolist()}
        entries = archive.infolist()
    assert done.files == len(entries) == len(held)
    listed = [line.split("\t") for line in git("ls-tree", "-rz", "HEAD").decode().split("\0") if line]
    blobs = {path: words.split()[2] for words, path in listed}
    assert held.keys() == blobs.keys() | NAMES
    assert {path: hashlib.sha1(b"blob %d\0" % len(held[path]) + held[path]).hexdigest() for path in blobs} == blobs
    assert held["COMMIT"].decode() == f"{head}\n"
    manifest = dict(reversed(line.split("  ")) for line in held["MANIFEST.sha256"].decode().splitlines())
    assert manifest == {path: hashlib.sha256(held[path]).hexdigest() for path in held.keys() - {"MANIFEST.sha256"}}
    metadata = json.loads(held[".zenodo.json"])
    assert (metadata["version"], metadata["upload_type"]) == ("0.1.0", "software")


@pytest.mark.skipif(not (shutil.which("unzip") and shutil.which("sha256sum")), reason="needs unzip and sha256sum")
def test_sha256sum_checks_what_was_unpacked(repository, tmp_path):
    path = write_bundle().path
    subprocess.run(["unzip", "-q", path, "-d", tmp_path], check=True)
    folder, check = tmp_path / path.stem, ["sha256sum", "--quiet", "--strict", "-c", "MANIFEST.sha256"]
    assert subprocess.run(check, cwd=folder, capture_output=True, text=True).stdout == ""
    assert os.access(folder / "run", os.X_OK)
    assert not os.access(folder / "empty", os.X_OK)
    (folder / "empty").write_text("no more")
    assert subprocess.run(check, cwd=folder, capture_output=True, text=True).stdout == "empty: FAILED\n"


def test_one_commit_gives_the_same_bytes_on_any_machine(repository, tmp_path, monkeypatch):
    """Another clone with line ends of Windows, other modes and settings of git, another time zone."""
    first = write_bundle().path
    other = tmp_path / "other"
    git("-c", "core.autocrlf=true", "clone", "-q", "-c", "core.autocrlf=true", ".", str(other))
    git("-C", str(other), "config", "core.abbrev", "20")
    git("-C", str(other), "config", "status.showUntrackedFiles", "no")
    assert b"\r\n" in (other / "run").read_bytes()
    before = os.umask(0o077)
    try:
        with monkeypatch.context() as robustness:
            robustness.setenv("TZ", "XYZ-9")  # nine hours east, whatever zones are installed
            time.tzset()
            robustness.chdir(other)
            second = other / write_bundle().path
    finally:
        os.umask(before)
        time.tzset()
    assert first.name == second.name
    assert (repository / first).read_bytes() == second.read_bytes()
    with zipfile.ZipFile(second) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(2026, 11, 25, 10, 59, 58)}  # zip counts in steps of two seconds
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {(entry.create_system, entry.extra) for entry in entries} == {(3, b"")}


def test_another_commit_gives_another_bundle(repository):
    first = write_bundle()
    Path("run").chmod(0o644)
    git("commit", "-qam", "y")
    assert write_bundle().sha256 != first.sha256
    assert len(list(Path("bundle").iterdir())) == 2


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (lambda: Path("run").write_text("else"), "run"),
        (lambda: Path("empty").unlink(), "empty"),
        (lambda: Path("new").touch(), "new"),
        (lambda: git("mv", "empty", "moved"), "empty, moved"),
        (lambda: [Path(f"new{k}").touch() for k in range(7)], "new0, new1, new2, new3, new4 and 2 more"),
    ],
)
def test_what_is_not_committed_is_named(repository, edit, names):
    edit()
    with pytest.raises(UserError, match=f"commit or undo what differs from it first: {names}$"):
        write_bundle()
    assert not Path("bundle").exists()


def test_what_a_bundle_cannot_hold(repository):
    Path("link").symlink_to("run")
    git("add", "-A")
    git("commit", "-qm", "y")
    with pytest.raises(UserError, match=r"a bundle can't hold links, submodules and .*: link$"):
        write_bundle()


def test_a_bundle_is_not_bundled_again(repository):
    Path("COMMIT").write_text("before")
    git("add", "-A")
    git("commit", "-qm", "y")
    with pytest.raises(UserError, match=r"^COMMIT came with a bundle"):
        write_bundle()


def test_no_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UserError, match="a bundle is made of a commit, but git says: fatal: not a git repository"):
        write_bundle()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="a bundle is made of a commit, but git can't be run"):
        write_bundle()
