"""A folder to work in without a clone: recipes, analyses, and what make and DVC need there."""

import os
import shutil
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from stemrepro.common.code_hash import PACKAGE
from stemrepro.common.errors import UserError

TEMPLATE = PACKAGE / "template"
"""Where a wheel holds the files; a clone has no such folder."""
GIT = ("git", "-c", "user.name=stemrepro", "-c", "user.email=stemrepro@localhost", "-c", "commit.gpgsign=false")


def template() -> dict[str, Path]:
    """Return what is laid out: the name below the new folder -> a file or folder of the wheel or the clone."""
    if TEMPLATE.is_dir():
        return {path.name: path for path in TEMPLATE.iterdir()}
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    inside = TEMPLATE.relative_to(PACKAGE.parent)
    return {Path(target).relative_to(inside).as_posix(): PACKAGE.parent / source for source, target in included.items()}


def lay_out(folder: Path) -> None:
    """Write the files of a new project, and commit them to a git repository of its own.

    Args:
        folder: a new one, or an empty one.

    Raises:
        UserError: the folder has files, is a file, or git doesn't work.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and isn't empty; name a new folder, as in 'stemrepro init my-stem'")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".stemrepro-") as aside:
        made = Path(aside) / "project"
        made.mkdir()
        for name, source in template().items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, made / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, made / name)
        message = f"Laid out by stemrepro {version('stemrepro')}"
        for command in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "--no-verify", "-m", message]):
            _git(command, made)
        os.replace(made, folder)  # over an empty folder too; a kill leaves no half of a project


def _git(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run([*GIT, *command], cwd=folder, capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"a project needs git, which can't be run here ({error.strerror}); install it") from error
    if done.returncode:
        raise UserError(f"'git {command[0]}' failed in the new project: {' '.join(done.stderr.split())}")
