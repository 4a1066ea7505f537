"""Where a result came from: commit, versions, machine, time. Kept next to results, and hashed of runs alone."""

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from stemrepro.common.code_hash import PACKAGE
from stemrepro.common.errors import UserError
from stemrepro.common.files import damaged, read_json
from stemrepro.common.yaml_records import Strict, parse

PACKAGES = ("torch", "lightning", "datasets", "tokenizers", "lm-eval", "numpy", "scipy", "matplotlib", "dvc")
COMMIT = Path("COMMIT")
"""File into which `git archive` writes the commit's hash (.gitattributes); a clone has the placeholder '$Format...'."""


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}).stdout


def commit() -> str:
    """Return the commit of the working directory, or '<commit>+unpacked' of an unpacked archive, else 'unknown'.

    '+changes' means that tracked files differ; edits of an unpacked archive's code can't be seen. 'unknown' is also the
    commit of code that lies elsewhere than the working directory's own (`other_code`).
    """
    if other_code():
        return "unknown"
    try:
        head, _ = _git("rev-parse", "HEAD", "HEAD:./").split()  # a repository around a copy of ours has no such folder
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "stemrepro", "analysis", "recipes")
    except (OSError, subprocess.CalledProcessError):
        source = COMMIT.read_text(encoding="utf-8").strip() if COMMIT.is_file() else ""
        return "unknown" if source.startswith("$") or not source else f"{source}+unpacked"
    return head + ("+changes" if changed else "")


def other_code() -> str:
    """Return advice where the working directory has code of its own, as a clone has, and other code runs; else ""."""
    here = Path(PACKAGE.name).absolute()
    if not (here / "__init__.py").is_file() or here.samefile(PACKAGE):
        return ""
    return (
        f"the code that runs is {PACKAGE}, not {here}: PYTHONPATH or this environment is another folder's; "
        "make one here: rm -rf .venv && make .venv/bin/.installed && . .venv/bin/activate"
    )


def no_repository(of_dvc: bool = True) -> str:
    """Return advice where git can't read the repository that results name, or, `of_dvc`, that DVC needs; else ""."""
    try:
        _git("rev-parse", "--git-dir")
    except OSError as error:
        return f"DVC needs git, which can't be run here ({error.strerror}); install it" if of_dvc else ""
    except subprocess.CalledProcessError as error:
        if "not a git repository" not in error.stderr:
            reason = " ".join(error.stderr.split())
            return f"git refuses to read this repository, so that results name no commit: {reason}"
        return (
            "DVC needs a git repository here: git init -q && git add -A && git commit -qm stemrepro" if of_dvc else ""
        )
    return ""


INSTRUCTIONS = {"avx2": "avx2", "avx512f": "avx512", "amx_tile": "amx"}
"""Flags of /proc/cpuinfo for instruction sets that round differently, and their names."""


def machine() -> str:
    """Return the processor with its instruction sets and the system, without the host's name."""
    about: dict[str, str] = {}
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    model = about.get("model name") or platform.processor() or platform.machine()
    flags = about.get("flags", "").split()
    sets = " ".join(name for flag, name in INSTRUCTIONS.items() if flag in flags) or "unknown instruction sets"
    return f"{model} [{sets}], {platform.system()} {platform.machine()}, Python {platform.python_version()}"


class Made(Strict):
    """What every provenance.json has."""

    model_config = ConfigDict(extra="ignore")

    commit: str
    date: str
    versions: dict[str, str]
    machine: str


class Trained(Made):
    """What the provenance.json of a run has."""

    epochs: float
    params_hash: str


def read_provenance(path: Path, kind: type[Made] = Made) -> dict[str, Any]:
    """Read a provenance.json; UserError where it is missing or damaged."""
    value = read_json(path)
    try:
        parse(kind, value, path, exact=True)
    except UserError as error:
        raise damaged(path, str(error).removeprefix(f"{path}: ")) from error
    return value


@cache
def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):  # training needs neither DVC nor lm-eval
            found[package] = version(package)
    return found


def provenance() -> dict[str, Any]:
    """Return commit, date (UTC), versions and machine."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": _versions(),
        "machine": machine(),
    }
