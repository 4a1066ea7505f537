"""`make bundle`: an archive holds what git has of a commit, byte for byte, the same however the clone was made."""

import hashlib
import os
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

IDENTITY = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("make", "unzip", "sha256sum"))) or "$" not in (ROOT / "COMMIT").read_text(),
        reason="needs make, unzip, sha256sum and a clone",
    ),
]


def call(*command, **options):
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | IDENTITY, **options
    ).stdout


def bundle(folder):
    """The archive that `make bundle` writes."""
    call("make", "-f", str(ROOT / "Makefile"), "bundle", cwd=folder)
    (path,) = (folder / "bundle").iterdir()
    return path


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Files of several kinds, committed; and one that git is told to leave out."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("Makefile", ".gitattributes", "COMMIT", "pyproject.toml"):
        shutil.copy(ROOT / name, name)
    Path("deep/er").mkdir(parents=True)
    Path("deep/er/bytes.npz").write_bytes(bytes(range(256)) + b"\r\n\n")
    Path("Ünicode name.txt").write_text("text\nlines\n")
    Path("empty").touch()
    Path("run").write_text("#!/bin/sh\n")
    Path("run").chmod(0o755)
    Path(".gitignore").write_text("/bundle/\n/ignored\n")
    Path("ignored").write_text("never committed")
    call("git", "init", "-q")
    call("git", "add", "-A")
    call("git", "commit", "-qm", "x")
    return folder


def test_an_archive_holds_what_git_has_and_names_its_commit(repository, tmp_path):
    path, head = bundle(repository), call("git", "rev-parse", "HEAD").strip()
    version = tomllib.loads(Path("pyproject.toml").read_text())["project"]["version"]
    assert path.name == f"stemrepro-{version}-{head[:7]}.zip"
    call("unzip", "-q", str(path), "-d", str(tmp_path))
    folder, check = tmp_path / path.stem, ["sha256sum", "--quiet", "--strict", "-c", "MANIFEST.sha256"]
    held = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.glob("**/*") if file.is_file()}
    assert held.pop("COMMIT").decode() == f"{head}\n"
    assert len(held.pop("MANIFEST.sha256").splitlines()) == len(held) + 1
    listed = [line.split("\t") for line in call("git", "ls-tree", "-rz", "HEAD").split("\0") if line]
    blobs = {name: words.split()[2] for words, name in listed if name != "COMMIT"}
    assert {
        name: hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() for name, content in held.items()
    } == blobs
    assert os.access(folder / "run", os.X_OK)
    assert not os.access(folder / "empty", os.X_OK)
    assert call(*check, cwd=folder) == ""
    (folder / "empty").write_text("no more")
    assert subprocess.run(check, cwd=folder, capture_output=True, text=True).stdout == "empty: FAILED\n"


def test_one_commit_gives_the_same_bytes_on_any_machine(repository, tmp_path, monkeypatch):
    """Another clone with line ends of Windows, other modes, another time zone."""
    first, other = bundle(repository), tmp_path / "other"
    call("git", "clone", "-q", "-c", "core.autocrlf=true", ".", str(other))
    assert b"\r\n" in (other / "run").read_bytes()
    monkeypatch.setenv("TZ", "XYZ-9")
    before = os.umask(0o077)
    try:
        second = bundle(other)
    finally:
        os.umask(before)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(second) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.parametrize(
    "edit", [lambda: Path("run").write_text("else"), lambda: Path("empty").unlink(), lambda: Path("new").touch()]
)
def test_what_is_not_committed_is_named(repository, edit):
    edit()
    done = subprocess.run(["make", "bundle"], capture_output=True, text=True)
    assert done.returncode == 2
    changed = call("git", "status", "--porcelain")
    assert done.stderr.startswith(f"a bundle is made of a commit; commit or undo first:\n{changed}")
    assert not Path("bundle").exists()


def test_the_citation_names_the_package(repository):
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
