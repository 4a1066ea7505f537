"""The one exception that means "the input is wrong": the command line prints its sentence and exits with 2."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED, NEAREST = 20, 5
"""Of more names than that an error lists the nearest alone."""


class UserError(Exception):
    """Bad input. The message is one sentence that names the file, the key or the value and says what would be right."""


def unknown(what: str, name: str, known: Iterable[str], where: str) -> UserError:
    """Return the error for a name that isn't there: the nearest that is, and all of them, or some where there are many.

    Args:
        what: "arm", "scale", ...
        known: the names there are.
        where: the file or folder that has them.
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean '{near[0]}'?" if near else ""
    if len(names) > MOST_LISTED:
        names, where = get_close_matches(name, names, n=NEAREST, cutoff=0), f"{where}, among others,"
    return UserError(f"{what} {name!r} is unknown{meant} ({where} has {', '.join(names) or 'none'})")
