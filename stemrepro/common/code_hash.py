"""A short hash of code: some files and all files that they import, without comments, docstrings and layout."""

import ast
import itertools
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest

PACKAGE = Path(__file__).parent.parent
UNMEANT = ("kind", "type_comment", "type_ignores")
"""Fields of a syntax tree that say how something is written, not what."""


def canonical(node: object) -> str:
    """Return a syntax tree as text, the same in every version of Python: empty fields exist in some versions alone."""
    if isinstance(node, list):
        comments = [part for part in node if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
        said = [part for part in node if part not in comments and not isinstance(part, ast.Pass)]
        return f"[{','.join(map(canonical, said))}]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {hex(node) if type(node) is int else ascii(node)}"
    fields = {name: value for name, value in ast.iter_fields(node) if name not in UNMEANT}
    if isinstance(node, ast.JoinedStr):  # text in an f-string is one part; some versions leave it empty or in pieces
        pieces = itertools.groupby(node.values, lambda part: isinstance(part, ast.Constant))
        parts = [
            ["".join(str(part.value) for part in group if isinstance(part, ast.Constant))] if text else [*group]
            for text, group in pieces
        ]
        fields["values"] = [part for group in parts for part in group if part != ""]
    texts = {name: canonical(fields[name]) for name in sorted(fields)}
    said = [f"{name}={text}" for name, text in texts.items() if text not in ("NoneType None", "[]")]
    return f"{type(node).__name__}({','.join(said)})"


def file_of(module: str, importer: Path | None = None) -> Path | None:
    """Return the file of a module, None for an installed one. `importer` matters for relative and users' own files."""
    level = len(module) - len(module.lstrip("."))
    names = module[level:].split(".")
    folders = [PACKAGE.parent] if names[0] == PACKAGE.name else []
    if level and importer:
        folders = [*importer.parents][level - 1 : level]
    elif not folders and importer and not importer.is_relative_to(PACKAGE):
        folders = [importer.parent, Path()]
    stems = [folder.joinpath(*names) for folder in folders]
    paths = [path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")]
    return next((path for path in paths if path.is_file()), None)


@cache
def _read(file: Path) -> tuple[str, frozenset[Path]]:
    """Return a hash of what a file says, and the files that it imports, also inside functions."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file} is not valid Python: {error}") from error
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            home = "." * node.level + (f"{node.module}." if node.module else "")
            names += [home.removesuffix("."), *(home + alias.name for alias in node.names)]
    found = {path for name in names if name.strip(".") and (path := file_of(name, file))}
    inits = {folder / "__init__.py" for path in found for folder in path.parents if folder != PACKAGE.parent}
    return digest(canonical(tree)), frozenset(found | {path for path in inits if path.is_file()})


def files(places: Iterable[str | Path], without: Iterable[str] = ()) -> list[Path]:
    """Return modules or files and all that they import, but not what only the modules `without` import."""
    out, reached = {file_of(module) for module in without}, list[Path]()
    for place in places:
        if (file := place if isinstance(place, Path) else file_of(place)) is None:
            raise ValueError(f"{place} is no module of {PACKAGE.name}")
        reached.append(file)
    for file in reached:
        reached += _read(file)[1] - {*reached} - out
    return sorted({*reached} - out)


def code_hash(*places: str | Path, without: Iterable[str] = ()) -> str:
    """Return the hash of `files` (12 hex digits); where a file lies decides nothing. UserError: one is no Python."""
    return digest(sorted({_read(file)[0] for file in files(places, without)}))
