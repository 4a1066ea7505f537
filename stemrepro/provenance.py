"""Where a result came from: commit, versions, machine, time. Kept beside results and never hashed."""

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pydantic import ConfigDict

from stemrepro.errors import UserError
from stemrepro.files import damaged, read_json
from stemrepro.records import Strict, parse

PACKAGES = (
    "torch",
    "lightning",
    "datasets",
    "tokenizers",
    "lm-eval",
    "numpy",
    "scipy",
    "matplotlib",
    "dvc",
)


def commit() -> str:
    """The repository's commit, with '+changes' when tracked files differ from it, or 'unknown'."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no", "--", "stemrepro", "analysis", "recipes"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+changes" if changed else "")


def machine() -> str:
    """Processor and system, without the host's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        model = platform.processor()
    return (
        f"{model or platform.machine()}, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )


class Made(Strict):
    """What every provenance.json says."""

    model_config = ConfigDict(extra="ignore")

    commit: str
    date: str
    versions: dict[str, str]
    machine: str


class Trained(Made):
    """What that of a run says."""

    epochs: float


def read_provenance(path: Path, kind: type[Made] = Made) -> dict:
    """A provenance.json; UserError where it is damaged."""
    value = read_json(path)
    try:
        parse(kind, value, path, exact=True)
    except UserError as error:
        raise damaged(path, str(error).removeprefix(f"{path}: ")) from error
    return value


def provenance() -> dict:
    """Commit, date (UTC), versions and machine."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": {package: version(package) for package in PACKAGES},
        "machine": machine(),
    }
