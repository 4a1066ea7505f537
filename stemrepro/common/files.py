"""Small helpers: atomic writes, content hashes, nested settings as flat ones."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from stemrepro.common.errors import UserError


def atomic_write(path: Path | str, content: str | bytes) -> None:
    """Write so that `path` holds its old bytes or all new ones, even after a power cut; UserError: it can't be."""
    path, temporary = Path(path), None
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less what the umask takes
        temporary = aside
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            sync(file)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(
                f"{path} could not be written ({error.strerror}); what was there is unharmed: make room, "
                f"see who may write there, or move the project to another disk, and run again"
            ) from error
        raise


def sync(file: IO[Any]) -> None:
    """Put what was written to an open file on its disk; OSError, with the file's name, where that is refused."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from error


@contextmanager
def locked(folder: Path, otherwise: str = "") -> Iterator[None]:
    """Keep other processes out of a folder; the system unlocks it when this process is killed.

    What is locked is a file next to the folder: folders NFS would lock for the processes of one machine alone.

    Args:
        otherwise: the error's message where another process has it; "" to wait for that process.

    Raises:
        UserError: another process has it, or its disk has no locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
        except BlockingIOError as error:
            raise UserError(otherwise) from error
        except OSError as error:
            raise UserError(
                f"{folder} can't be locked ({error.strerror}); move the project to a disk whose file system has locks"
            ) from error
        yield


def json_text(value: object) -> str:
    """Return JSON with sorted keys, so that equal values give equal texts; ValueError for NaN and infinity."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path | str, value: object) -> None:
    """Write `json_text` of a value."""
    atomic_write(path, json_text(value))


def damaged(path: Path, error: object) -> UserError:
    """Return the error for a file that can't be used; a refusal of the system, such as a permission, is no damage."""
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT, errno.EISDIR, errno.ENOTDIR):
        return UserError(
            f"{path} can't be read ({error.strerror}); it may be whole: see what is in the way and run again"
        )
    return UserError(
        f"{path} is missing or damaged ({' '.join(str(error).split())}); restore it, or delete it (of a run: its "
        f"folder) and run 'make reproduce' with its SCALE"
    )


def _parsed(path: Path, read: Callable[[str], Any]) -> Any:
    try:
        return read(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error


def read_json(path: Path) -> Any:
    """Return a JSON file; UserError when it is damaged."""
    return _parsed(path, json.loads)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file; UserError when it is damaged."""
    return _parsed(path, lambda text: [json.loads(line) for line in text.split("\n") if line])


def within(folder: Path, path: Path) -> Path:
    """Return `path` if it leads to nothing outside the folder, or to a blob next to a snapshot of Hugging Face's."""
    home, place = folder.resolve(), path.resolve()
    blobs = home.parents[1] / "blobs" if home.parent.name == "snapshots" else home
    if not (place.is_relative_to(home) or place.is_relative_to(blobs)):
        raise UserError(f"{path} leads out of {folder}, to {place}; only files of that folder are read")
    return path


def sha256(path: Path | str) -> str:
    """Return the hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: object) -> str:
    """Return a short stable hash of a JSON-like value (12 hex digits)."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings: {'a': {'b': 1}} -> {'a.b': 1}."""
    result = {}
    for key, inner in value.items():
        result.update(flat(inner, f"{prefix}{key}.") if isinstance(inner, dict) else {f"{prefix}{key}": inner})
    return result


def private_folder() -> Path:
    """Return a folder below TMPDIR for compiled code, in which nobody else can put any: torch would load and run it.

    Its name can be guessed, so that another user may have made it first, or a link. Then a new one is made.
    """
    place = Path(tempfile.gettempdir()) / f"stemrepro-{os.getuid()}"  # a container's user may have no name
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    about = place.lstat()
    if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
        return place
    other = tempfile.mkdtemp(prefix="stemrepro-")
    print(f"stemrepro: others may write to {place}; compiled code goes to {other}", file=sys.stderr)
    return Path(other)
