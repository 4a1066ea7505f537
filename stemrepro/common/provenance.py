"""Where a result came from: commit, versions, machine, time. Kept beside results and never hashed."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pydantic import ConfigDict

from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged, read_json
from stemrepro.common.yaml_records import Strict, parse

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
NO_COMMIT = ("not a git repository", "unknown revision", "not in 'HEAD'")
"""What git says where there is none."""
SAID = "STEMREPRO_GIT_SAID"
COMMIT = Path("COMMIT")
"""`git archive` writes the commit's hash into this file (.gitattributes); a clone has git's placeholder, '$Format...'."""


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}
    ).stdout.strip()


def _unpacked() -> str:
    """Return the commit of an unpacked archive with '+unpacked', as nobody knows whether its code was edited; else 'unknown'."""
    source = COMMIT.read_text(encoding="utf-8").strip() if COMMIT.is_file() else ""
    return "unknown" if source.startswith("$") or not source else f"{source}+unpacked"


def commit() -> str:
    """Return the commit that holds the working directory, with '+changes' when tracked files differ from it; or that of `_unpacked`.

    Where git refuses to say, as it does of another user's repository, its reason is printed once a command.
    """
    try:
        head, _ = _git("rev-parse", "HEAD", "HEAD:./").split()  # a repository around a copy of ours has no such folder
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "stemrepro", "analysis", "recipes")
    except OSError:
        return _unpacked()
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split())
        if not any(words in said for words in NO_COMMIT) and SAID not in os.environ:
            os.environ[SAID] = "1"  # processes that start from here on keep still
            print(f"stemrepro: results that are made here name no commit, as git refuses: {said}", file=sys.stderr)
        return _unpacked()
    return head + ("+changes" if changed else "")


def no_repository() -> str:
    """Return what to do where there is no git repository, which DVC and `stemrepro verify` need; "" where there is one."""
    try:
        _git("rev-parse", "--git-dir")
    except OSError as error:
        return f"DVC needs git, which can't be run here ({error.strerror}); install it"
    except subprocess.CalledProcessError as error:
        if "not a git repository" in error.stderr:
            return "DVC needs a git repository here: git init -q && git add -A && git commit -qm stemrepro"
    return ""


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
    """Return a provenance.json; UserError where it is damaged."""
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
