"""The one exception that means "the input is wrong": the command line prints its sentence and exits with its code."""

import errno
from collections.abc import Collection, Iterable
from difflib import get_close_matches

MOST_LISTED, NEAREST = 20, 5
"""An error lists at most MOST_LISTED names, and of more names the NEAREST alone."""


class UserError(Exception):
    """Bad input. The message is one sentence that names the file, the key or the value and says what would be right."""

    code = 2
    """The command's exit code."""


def unknown(what: str, name: str, choices: Iterable[str], where: str) -> UserError:
    """Return the error for an unknown `what` that `where` hasn't: with the nearest choice, and all choices, or some."""
    names = list(choices)
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean '{near[0]}'?" if near else ""
    few = ""
    if len(names) > MOST_LISTED:
        names, few = get_close_matches(name, names, n=NEAREST, cutoff=0), "among others "
    return UserError(f"{what} {name!r} is unknown{meant} ({where} has {few}{', '.join(names) or 'none'})")


def checked(what: str, name: str, choices: Collection[str], where: str) -> str:
    """Return a name that is among the choices; UserError, as `unknown` has it, for another."""
    if name not in choices:
        raise unknown(what, name, choices, where)
    return name


def of_system(error: OSError) -> str:
    """Return a sentence for what the system refused; "" where a missing file, or another process, is the cause."""
    if not error.strerror or isinstance(error, FileNotFoundError | FileExistsError | ConnectionError):
        return ""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no room left on the disk{where}; make some and run again"
    return f"{error.strerror.lower()}{where}; look at that file, at its disk, and at who may read and write there"
