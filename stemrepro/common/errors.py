"""The one exception that means "the input is wrong": the command line prints its sentence and exits with 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input. The message is one sentence that names the file, the key or the value and says what would be right."""


def unknown(what: str, name: str, known: Iterable[str], where: str) -> UserError:
    """Return the error for a name that isn't there: the nearest that is, and all of them.

    Args:
        what: "arm", "scale", ...
        known: the names there are.
        where: the file or folder that has them.
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"{what} {name!r} is unknown{meant} ({where} has {', '.join(names) or 'none'})")
