"""One file for an archive such as Zenodo: all that is committed, its hashes, its commit and Zenodo's metadata.

The same commit gives the same bytes on any machine. Contents come from git's objects, not from the working tree, whose line ends and
modes follow the machine; and nothing is compressed, as libraries that do so differ in their bytes.
"""

import hashlib
import io
import json
import subprocess
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from stemrepro.cli.citation import citation, zenodo
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.unpacked import COMMIT, MANIFEST

BUNDLES = Path("bundle")
ZENODO = ".zenodo.json"
SHORT = 7
"""Digits of a commit in a bundle's name; git's own choice follows the size of the clone."""
PLAIN, EXECUTABLE = 0o100644, 0o100755
NAMED = 5
"""Files that an error names at most."""


class Bundle(NamedTuple):
    """A bundle that was written.

    Attributes:
        size: bytes of the file.
        files: how many it holds.
        sha256: of the file.
    """

    path: Path
    size: int
    files: int
    sha256: str


class File(NamedTuple):
    """A file's mode, with its type as in git, and its bytes."""

    mode: int
    content: bytes


def _git(*arguments: str, given: bytes | None = None) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], input=given, capture_output=True)
    except OSError as error:
        raise UserError(f"a bundle is made of a commit, but git can't be run ({error})") from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise UserError(f"a bundle is made of a commit, but git says: {said}")
    return done.stdout


def _names(paths: list[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more


def _check_clean() -> None:
    found = _git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--", ".")
    if changed := [entry[3:] for entry in found.decode().split("\0") if entry]:
        raise UserError(f"a bundle is made of a commit; commit or undo what differs from it first: {_names(changed)}")


def committed(commit: str) -> dict[str, File]:
    """Return all files of a commit below the working directory, by path.

    Raises:
        UserError: one of them is no plain file, or has a name that sha256sum would write otherwise.
    """
    entries = [entry.split("\t", 1) for entry in _git("ls-tree", "-r", "-z", commit).decode().split("\0") if entry]
    about = {path: words.split() for words, path in entries}
    modes = {path: int(mode, 8) for path, (mode, _, _) in about.items()}
    if odd := [path for path, mode in modes.items() if mode not in (PLAIN, EXECUTABLE) or {*path} & {"\\", "\n", "\r"}]:
        raise UserError(f"a bundle can't hold links, submodules and names with line ends or backslashes: {_names(odd)}")
    answer = io.BytesIO(_git("cat-file", "--batch", given="".join(f"{own[2]}\n" for own in about.values()).encode()))
    files = {}
    for path, mode in modes.items():
        size = int(answer.readline().split()[2])
        files[path] = File(mode, answer.read(size))
        answer.read(1)  # the line end behind each
    return files


def _zipped(files: dict[str, File], folder: str, moment: datetime) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(f"{folder}/{path}", moment.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_STORED
            entry.create_system, entry.external_attr = 3, files[path].mode << 16  # 3: modes are Unix's
            archive.writestr(entry, files[path].content)
    return whole.getvalue()


def write_bundle(folder: Path = BUNDLES) -> Bundle:
    """Write <folder>/stemrepro-<version>-<short commit>.zip of the working directory's commit.

    Raises:
        UserError: something isn't committed, there is no commit, or CITATION.cff lacks what Zenodo wants.
    """
    _check_clean()
    commit = _git("rev-parse", "HEAD").decode().strip()
    moment = datetime.fromtimestamp(int(_git("show", "-s", "--no-show-signature", "--format=%ct", commit)), UTC)
    files, cited = committed(commit), citation()
    metadata = json.dumps(zenodo(cited), indent=2, ensure_ascii=False) + "\n"
    made = {COMMIT.name: f"{commit}\n", ZENODO: metadata}
    if twice := sorted(files.keys() & {*made, MANIFEST.name}):
        raise UserError(
            f"{_names(twice)} came with a bundle or would be written into it; make bundles in a clone without"
        )
    files |= {path: File(PLAIN, text.encode()) for path, text in made.items()}
    hashes = [f"{hashlib.sha256(files[path].content).hexdigest()}  {path}\n" for path in sorted(files)]
    files[MANIFEST.name] = File(PLAIN, "".join(hashes).encode())
    name = f"stemrepro-{cited.version}-{commit[:SHORT]}"
    whole = _zipped(files, name, moment)
    path = folder / f"{name}.zip"
    atomic_write(path, whole)
    return Bundle(path, len(whole), len(files), hashlib.sha256(whole).hexdigest())
