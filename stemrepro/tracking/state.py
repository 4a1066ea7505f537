"""Does MLflow have all that lies in a scale's folders? Told by sizes and times, without opening it, which takes seconds."""

import json
import os
import socket
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest, locked, write_json
from stemrepro.common.paths import RECIPES, RESULTS, RUNS, SCORES

DEFAULT_URI = "sqlite:///mlflow.db"
ARTIFACTS, CLONE = "/mlruns/", Path("mlflow.db.clone")
OF_A_RUN = ("config.yaml", "metrics.jsonl", "weights.safetensors", "diverged.json", "provenance.json")


def tracking_uri() -> str:
    """Return where MLflow keeps its runs."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


class Held(NamedTuple):
    """What the database has of a scale: so many arms and runs by seed, and where its page shows them, below the server's address."""

    arms: int
    runs: int
    place: str


def _seen(path: Path) -> list | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [path.as_posix(), found.st_ino, found.st_size, found.st_mtime_ns]


def state(runs: Path, scores: Path, results: Path, arms: str = "*/*") -> list[list | None]:
    """Sizes and times of what MLflow should hold of a scale's folders, or of the arms whose path a pattern matches."""
    runs_files = (
        config.with_name(name) for config in sorted(runs.glob(f"{arms}/seed*/config.yaml")) for name in OF_A_RUN
    )
    others = sorted(scores.glob(f"*/{arms}/summary.json"))
    results_files = [path for name in ("figure.png", "verdicts.json") for path in sorted(results.glob(f"*/{name}"))]
    return [_seen(path) for path in (*runs_files, *others, *results_files)]


def database() -> Path | None:
    """Return the file that MLflow keeps its runs in; None for a server."""
    uri = tracking_uri()
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def private() -> Path | None:
    """Return the file of a database that lies in this folder, and so holds nobody else's; None for any other place."""
    file = database()
    return file if file and file.resolve().is_relative_to(Path.cwd()) else None


def clone() -> str:
    """Return a short name for this folder where others track into the same place: made at random, kept by a move, and another one in a copy."""
    if not CLONE.exists():
        atomic_write(CLONE, f"{uuid.uuid4().hex}\n")
    return digest([CLONE.read_text(encoding="utf-8"), CLONE.stat().st_ino])[:6]  # a copied file has a number of its own


@contextmanager
def made_whole() -> Iterator[str | None]:
    """The address of a database to be made, which is the one in use once the body is done; None where that is there.

    MLflow makes its tables one by one, and takes none that lacks some: killed in between, it would leave one that nobody can open.
    """
    file = database()
    if not file or file.exists():
        yield None
        return
    with locked(file.parent):
        if file.exists():  # another process made it just now
            yield None
            return
        new = file.with_name(f"{file.name}.new")
        new.unlink(missing_ok=True)
        yield f"sqlite:///{new}"
        os.replace(new, file)


def settle() -> None:
    """Have a database that was moved or copied with its folder keep artifacts here: MLflow notes where they were when it was made."""
    if not (file := private()) or not file.exists():
        return
    with closing(sqlite3.connect(file)) as base, base:
        if not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone():
            return
        found = base.execute("SELECT artifact_location FROM experiments WHERE name LIKE 'stemrepro %'").fetchall()
        before = {location.rpartition(ARTIFACTS)[0] for (location,) in found}
        for old in (f"{place}{ARTIFACTS}" for place in before if place.startswith("/") and Path(place) != Path.cwd()):
            for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
                base.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                    (f"{Path.cwd()}{ARTIFACTS}", len(old) + 1, len(old), old),
                )


def _stamp(scale: str) -> tuple[Path, Path] | None:
    """Return the file of the database and the one beside it that says what it held; None for a server."""
    return (file, file.with_name(f"{file.name}.{scale}.json")) if (file := database()) else None


def sources(scale: str) -> str:
    """Return hash of what MLflow should hold of a scale, and of what says how."""
    code = sorted(RECIPES.rglob("*.yaml")) + sorted(Path(__file__).parent.glob("*.py"))
    return digest(
        [str(Path.cwd()), state(RUNS / scale, SCORES / scale, RESULTS / scale), [_seen(path) for path in code]]
    )


def remember(scale: str, now: Held, synced: str) -> None:
    """Note what the database holds now, from what `sources` said before it was synced."""
    if found := _stamp(scale):
        file, stamp = found
        write_json(stamp, {"holds": now._asdict(), "database": _seen(file), "sources": synced})


def held(scale: str) -> Held | None:
    """Return what the database has of a scale, if nothing changed on either side since that was noted; else None."""
    if not (found := _stamp(scale)):
        return None
    file, stamp = found
    try:
        about = json.loads(stamp.read_text(encoding="utf-8"))
        same = about["database"] == _seen(file) and about["sources"] == sources(scale)
        return Held(**about["holds"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_free(port: int) -> None:
    """UserError where a server can't be started at a port of this machine; one that MLFLOW_TRACKING_URI names runs already."""
    if tracking_uri().startswith("http"):
        return
    with socket.socket() as tried:
        tried.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do, or one that has just ended is in the way
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"nothing can be served at port {port} ({error.strerror}); choose another: make ui PORT={port + 1}"
            ) from error


def page(place: str, port: int) -> str:
    """Return the address at which a server shows what is at `place`: the one that MLFLOW_TRACKING_URI names, or that of `make ui`."""
    server = uri if (uri := tracking_uri()).startswith("http") else f"http://127.0.0.1:{port}"
    return f"{server.rstrip('/')}/{place}"
