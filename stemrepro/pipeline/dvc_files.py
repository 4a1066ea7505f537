"""DVC's own files that it writes in place: a kill in the middle of that leaves one that DVC refuses to read for ever after."""

import fcntl
import json
from contextlib import ExitStack
from pathlib import Path

import yaml

from stemrepro.pipeline.stages import DRAWING, PIPELINE

STATE = Path(".dvc/tmp")
GUARDS = ("lock", "rwlock.lock")
"""What a DVC that writes holds locked, in `STATE`."""


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False


def _is_lock(path: Path) -> bool:
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA  # DVC's own word for what it reads
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, Invalid):
        return False
    return True


def mend(home: Path = Path()) -> list[Path]:
    """Remove the files that a kill has cut short, and returns them. DVC makes them anew: runs and scores know by themselves what is done.

    Where a living DVC is at work they are its own, and nothing is done.
    """
    if not (home / STATE).is_dir():
        return []
    whole = {STATE / "rwlock": _is_json} | {path.with_suffix(".lock"): _is_lock for path in (DRAWING, PIPELINE)}
    removed = []
    with ExitStack() as stack:
        for name in GUARDS:
            guard = stack.enter_context((home / STATE / name).open("a"))
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return []
        for path, is_whole in whole.items():
            if (home / path).exists() and not is_whole(home / path):
                (home / path).unlink()
                removed.append(path)
    return removed
