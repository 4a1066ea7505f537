"""From the name of a feed-forward network or a memory to the file that has it; without torch."""

import re
from keyword import iskeyword
from pathlib import Path

from stemrepro.common.errors import UserError

OWN_FILE = re.compile(r"(?P<file>[\w./-]+\.py):(?P<name>[A-Za-z_]\w*)")
"""A network outside the package: file, from the repository's root, and class."""


def own_file(name: str) -> Path:
    """Return the file of a network outside the package, whether it exists or not.

    UserError: it isn't below the repository's root, also after links are followed, or the class has a bad name.
    ValueError: the name isn't a file and a class.
    """
    match = OWN_FILE.fullmatch(name)
    if match is None:
        raise ValueError(f"ffn '{name}' is no class of a file")
    file, root = Path(match["file"]), Path.cwd().resolve()
    if file.is_absolute() or ".." in file.parts or not file.resolve().is_relative_to(root):
        raise UserError(f"ffn '{name}': the file must lie below the repository's root")
    if iskeyword(match["name"]):
        raise UserError(f"ffn '{name}': a keyword of Python is no name of a class")
    return file


def module_of(name: str) -> str | Path:
    """Return the module of a network: "stem-dagger" -> "stemrepro.model.ffn.stem_dagger".

    Of "my/silu.py:SiluRows" it is the file.

    UserError: that file is missing, or isn't below the repository's root.
    """
    if not OWN_FILE.fullmatch(name):
        return f"{__package__}.ffn.{name.replace('-', '_')}"
    file = own_file(name)
    if not file.is_file():
        raise UserError(f"ffn '{name}': there is no file {file} below the repository's root")
    return file


def memory_module(name: str) -> str:
    """Return the module of a memory: "over-encoding" -> "stemrepro.model.memory.over_encoding"."""
    return f"{__package__}.memory.{name.replace('-', '_')}"
