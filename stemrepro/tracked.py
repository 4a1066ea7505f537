"""Does MLflow have all that lies in a scale's folders? Told by sizes and times, without opening it, which takes seconds."""

import json
import os
from pathlib import Path

from stemrepro.files import digest, write_json
from stemrepro.work import RESULTS, RUNS, SCORES

DEFAULT_URI = "sqlite:///mlflow.db"
OF_A_RUN = ("config.yaml", "metrics.jsonl", "weights.safetensors", "diverged.json", "provenance.json")


def tracking_uri() -> str:
    """Where MLflow keeps its runs."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


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
    others = sorted(scores.glob(f"*/{arms}/summary.json")) + sorted(results.glob("*/figure.png"))
    return [_seen(path) for path in (*runs_files, *others)]


def _stamp(scale: str) -> tuple[Path, Path] | None:
    """The file of the database and the one beside it that says what it held; None for a server."""
    uri = tracking_uri()
    if not uri.startswith("sqlite:///"):
        return None
    database = Path(uri.removeprefix("sqlite:///"))
    return database, database.with_name(f"{database.name}.{scale}.json")


def sources(scale: str) -> str:
    """Hash of what MLflow should hold of a scale, and of what says how."""
    code = sorted(Path("recipes").rglob("*.yaml")) + sorted(Path(__file__).parent.glob("track*.py"))
    return digest([state(RUNS / scale, SCORES / scale, RESULTS / scale), [_seen(path) for path in code]])


def remember(scale: str, count: int, page: str, synced: str) -> None:
    """Notes what the database holds now: `count` runs of a scale, from what `sources` said before they were synced."""
    if found := _stamp(scale):
        database, stamp = found
        write_json(stamp, {"runs": count, "page": page, "database": _seen(database), "sources": synced})


def held(scale: str) -> tuple[int, str] | None:
    """How many runs of a scale the database has and the page that shows them, if nothing changed on either side since; else None."""
    if not (found := _stamp(scale)):
        return None
    database, stamp = found
    try:
        about = json.loads(stamp.read_text())
        same = about["database"] == _seen(database) and about["sources"] == sources(scale)
        return (about["runs"], about["page"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
