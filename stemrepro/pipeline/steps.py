"""Steps that are done once: each knows what its files follow from, and is done again when that has changed.

A step's key is a hash of its settings, its code and the keys of the steps that it follows. data/<name>/made.json has
the keys of the steps that were done. DVC knows nothing of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stemrepro.common.code_hash import code_hash
from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, locked, read_json, write_json

MADE = "made.json"


@dataclass(frozen=True)
class Step:
    """Something that makes files."""

    name: str  # unique in `home`
    home: Path  # the folder whose made.json has its key
    outs: tuple[Path, ...]  # the files or folders that it makes
    about: object  # settings and inputs that decide them
    modules: tuple[str | Path, ...]  # modules and files of the code that makes them
    after: tuple["Step", ...]  # the steps whose files it reads
    make: Callable[[], None]  # the work

    @cached_property
    def key(self) -> str:
        """What its files follow from."""
        return digest([self.about, code_hash(*self.modules), [step.key for step in self.after]])

    def done(self) -> bool:
        """Tell whether its files are there and follow from what they would follow from now."""
        return _keys(self.home).get(self.name) == self.key and all(path.exists() for path in self.outs)

    def forget(self) -> None:
        """Note that its files are about to change: a kill on the way leaves files of no known key."""
        keys = _keys(self.home)
        if keys.pop(self.name, None):
            write_json(self.home / MADE, keys)

    def record(self) -> None:
        """Note that its files are made."""
        write_json(self.home / MADE, _keys(self.home) | {self.name: self.key})

    def do(self) -> bool:
        """Make its files where that isn't done, and tell whether that was so; another process's work is waited for."""
        if self.done():
            return False
        with locked(self.home):
            if self.done():
                return False
            self.forget()
            self.make()
            self.record()
        return True


def _keys(home: Path) -> dict[str, str]:
    try:
        keys = read_json(home / MADE) if (home / MADE).exists() else {}
    except UserError:  # damaged: all is made again
        keys = {}
    return keys if isinstance(keys, dict) else {}


def do(steps: Iterable[Step]) -> list[Step]:
    """Do steps in their order, and return those that weren't done before."""
    return [step for step in steps if step.do()]
