"""From the name of a feed-forward network to the file that has it; without torch."""

import re
from keyword import iskeyword
from pathlib import Path

from stemrepro.common.errors import UserError

OWN_FILE = re.compile(r"(?P<file>[\w./-]+\.py):(?P<name>[A-Za-z_]\w*)")
"""A network outside the package: file, from the repository's root, and class."""


def own_file(name: str) -> Path:
    """Return the file of a network outside the package, there or not; UserError unless it lies below the repository's root, also behind links."""
    file, root = Path(OWN_FILE.fullmatch(name)["file"]), Path.cwd().resolve()
    if file.is_absolute() or ".." in file.parts or not file.resolve().is_relative_to(root):
        raise UserError(f"ffn '{name}': the file must lie below the repository's root")
    if iskeyword(OWN_FILE.fullmatch(name)["name"]):
        raise UserError(f"ffn '{name}': a word of Python's own is no name of a class")
    return file


def module_of(name: str) -> str | Path:
    """Return the module of a network, "stem-dagger" -> "stemrepro.model.ffn.stem_dagger"; of "my/silu.py:SiluRows" the file.

    Raises:
        UserError: that file isn't there, or lies elsewhere.
    """
    if not OWN_FILE.fullmatch(name):
        return f"{__package__}.{name.replace('-', '_')}"
    if not (file := own_file(name)).is_file():
        raise UserError(f"ffn '{name}': there is no file {file} below the repository's root")
    return file
