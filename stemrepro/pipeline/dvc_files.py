"""Files that DVC writes in place.

A kill in the middle of such a write leaves a file that DVC refuses to read from then on.
"""

import fcntl
import json
from contextlib import ExitStack
from pathlib import Path

import yaml

from stemrepro.pipeline.stages import DRAWING, PIPELINE, SWEEPS

STATE = Path(".dvc/tmp")
GUARDS = ("lock", "rwlock.lock")
"""Files in `STATE` that DVC locks while it writes."""


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False


def _is_lock(path: Path) -> bool:
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA  # what DVC itself accepts
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, Invalid):
        return False
    return True


def mend(home: Path = Path()) -> list[Path]:
    """Remove the files that a kill has cut short, and return them.

    DVC makes them anew: runs and scores record by themselves what is done. Nothing is removed while a DVC is running.
    """
    if not (home / STATE).is_dir():
        return []
    whole = {STATE / "rwlock": _is_json} | {path.with_suffix(".lock"): _is_lock for path in (DRAWING, PIPELINE, SWEEPS)}
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
