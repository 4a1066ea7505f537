"""A run's folder while it is trained: locked, of these settings, and without what a killed process left."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, locked
from stemrepro.training import devices
from stemrepro.training.run import Run

WRITTEN = "config.yaml", "metrics.jsonl", "*.json", "*.safetensors", "*.ckpt", "*.sha256"


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a process that was killed while writing."""
    for name in WRITTEN:
        for path in (*folder.glob(f".{name}.????????"), *folder.glob(f"resume/.{name}.????????")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def empty(folder: Path, kept: str = "") -> None:
    """Remove what lies in a folder but the file named `kept`."""
    for path in folder.iterdir():
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def claim_folder(run: Run, replace: bool) -> None:
    """Make sure that what lies in the run folder belongs to this run; with `replace` anything else is removed.

    UserError: it was made with other settings; names the keys.
    """
    config = run.folder / "config.yaml"
    remove_leftovers(run.folder)
    if config.exists():
        changes = run.other_settings()
        foreign = f"holds a run with other settings ({changes})" if changes else ""
    else:
        foreign = "is not empty and has no config.yaml" if any(run.folder.iterdir()) else ""
    if foreign and not replace:
        raise UserError(f"{run.folder} {foreign}; move it or pass --replace")
    if foreign:  # a config.yaml exists at all times: tracking of other seeds reads it
        empty(run.folder, kept=config.name)
    if foreign or not config.exists():
        atomic_write(config, yaml.safe_dump(run.config, sort_keys=False))


@contextmanager
def claimed(run: Run, replace: bool) -> Iterator[bool]:
    """Hold the folder of a run for this training; yield whether nothing is left to train in it.

    UserError: another process trains in it, or as in `claim_folder`.
    """
    with ExitStack() as stack:

        def claim() -> bool:
            place = f"another process is training in {run.folder}; wait for it, or stop it"
            stack.enter_context(locked(run.folder, place))
            claim_folder(run, replace)
            return run.finished

        yield devices.from_rank_zero(claim)
