"""What code something rests on, for the identity of a run and the dependencies of a pipeline stage: the definitions that it reaches by
name. In which file they stand, and what is written about them, decides nothing: code can be moved.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import digest
from stemrepro.common.syntax import canonical, says_nothing

PACKAGE = Path(__file__).parent.parent
HASHING = (__name__, canonical.__module__)
"""The modules that make a hash, which decide nothing of what it stands for."""
OWN_NAMES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
COMPREHENSIONS = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
"""Parts of code whose names aren't their file's."""


@dataclass(frozen=True, eq=False)
class Definition:
    """A statement at the top of a file: a function, a class, an assignment, or one that acts.

    Attributes:
        text: what it says (12 hex digits).
        binds: the names that it gives its file; none if it only acts.
        uses: the dotted names in it; of F.silu(x) "F.silu" and "x".
        imports: what names imported in it stand for, as in `Source`.
    """

    file: Path
    text: str
    binds: frozenset[str]
    uses: frozenset[str]
    imports: dict[str, list[str]]


@dataclass(frozen=True, eq=False)
class Source:
    """A file of Python.

    Attributes:
        imports: the dotted names that a name imported at its top stands for, more than one where an import has another to fall back on;
            a dot in front for each level of a relative import.
        imported: all such names, also those imported inside functions.
    """

    definitions: list[Definition]
    imports: dict[str, list[str]]
    imported: frozenset[str]

    def named(self, name: str) -> list[Definition]:
        """Return the definitions that bind a name."""
        return [definition for definition in self.definitions if name in definition.binds]


def _binds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, OWN_NAMES):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, COMPREHENSIONS):
        for child in ast.iter_child_nodes(node):
            yield from _binds(child)


def _uses(node: ast.AST) -> Iterator[str]:
    attributes, root = [], node
    while isinstance(root, ast.Attribute):
        attributes.append(root.attr)
        root = root.value
    if isinstance(root, ast.Name):
        yield ".".join([root.id, *reversed(attributes)])
    else:
        for child in ast.iter_child_nodes(root):
            yield from _uses(child)


def _by_name(nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, whole in (pair for node in nodes for pair in _imports(node)):
        found.setdefault(name, []).append(whole)
    return found


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            for alias in part.names:
                yield alias.asname or alias.name, alias.name
                if not alias.asname:  # a.b names a
                    yield (alias.name.partition(".")[0],) * 2
        elif isinstance(part, ast.ImportFrom):
            start = "." * part.level + (f"{part.module}." if part.module else "")
            yield from ((alias.asname or alias.name, start + alias.name) for alias in part.names)


@cache
def _source(file: Path) -> Source:
    """Return a file, read; UserError where that is no Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file} is not valid Python: {error}") from error
    definitions = [
        Definition(file, digest(canonical(node)), frozenset(_binds(node)), frozenset(_uses(node)), _by_name([node]))
        for node in tree.body
        if not says_nothing(node)
    ]
    top = _by_name(node for node in tree.body if not isinstance(node, OWN_NAMES))
    return Source(definitions, top, frozenset(name for _, name in _imports(tree)))


def file_of(module: str, file: Path | None = None) -> Path | None:
    """Return the file of a module: of the package, or of what a file outside the package imports from its own folder or from the working
    directory. None: it is neither, as what is installed.
    """
    level = len(module) - len(module.lstrip("."))
    parts = module.lstrip(".").split(".")
    if level:
        folders = [file.parents[level - 1]] if level <= len(file.parents) else []
    elif parts[0] == PACKAGE.name:
        folders = [PACKAGE.parent]
    else:
        folders = [] if file is None or file.is_relative_to(PACKAGE) else [file.parent, Path()]
    stems = [folder.joinpath(*parts) for folder in folders]
    paths = [path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")]
    return next((path for path in paths if path.is_file()), None)


def _split(name: str, file: Path) -> tuple[Path | None, list[str]]:
    """Return the file of the longest part of a dotted name that is a module, and the rest of the name."""
    dots, parts = name[: len(name) - len(name.lstrip("."))], name.lstrip(".").split(".")
    for length in range(len(parts), 0, -1):
        if found := file_of(dots + ".".join(parts[:length]), file):
            return found, parts[length:]
    return None, parts


def _find(name: str, file: Path) -> list[Definition]:
    """Return the definitions that a dotted name, as imported by a file, stands for; none for what is installed."""
    home, rest = _split(name, file)
    if home is None:
        return []
    source = _source(home)
    if not rest or not (source.named(rest[0]) or rest[0] in source.imports):
        return source.definitions
    others = [_find(".".join([name, *rest[1:]]), home) for name in source.imports.get(rest[0], ())]
    return [*source.named(rest[0]), *(definition for found in others for definition in found)]


@cache
def _edges(definition: Definition) -> list[tuple[str, str, list[Definition]]]:
    """Return each dotted name in a definition that is defined or imported, the name that it is imported by, or "", and what it stands for."""
    source = _source(definition.file)
    imports, edges = source.imports | definition.imports, []
    for used in sorted(definition.uses):
        first, dot, rest = used.partition(".")
        names = [name + dot + rest for name in imports.get(first, ())]
        edges += [(used, name, _find(name, definition.file)) for name in names]
        if found := source.named(first):  # also where an import has it to fall back on
            edges.append((used, "", found))
    return edges


def files(places: Iterable[str | Path], without: Iterable[str] = ()) -> list[Path]:
    """Return every file that modules, or files outside the package, import, directly or not, also inside functions; sorted.

    Args:
        without: modules of the package that are left out, with what is imported through them alone.

    Raises:
        ValueError: there is no such module.
    """
    out = {file_of(module) for module in without}
    found = []
    for place in places:
        file = place if isinstance(place, Path) else file_of(place)
        if file is None:
            raise ValueError(f"{place} is no module of {PACKAGE.name}")
        found.append(file)
    for file in found:
        for name in sorted(_source(file).imported):
            home = _split(name, file)[0]
            above = (
                [] if home is None else [folder / "__init__.py" for folder in home.parents if folder != PACKAGE.parent]
            )
            found += {path for path in (home, *above) if path and path.is_file()} - {*found} - out
    return sorted(set(found) - out)


def code_hash(*places: str | Path, without: Iterable[str] = ()) -> str:
    """Return short hash of all definitions of modules, or of files outside the package, and of all that they reach by name (12 hex digits).

    A comment, a docstring, a line break or a move to another file changes nothing, nor does the version of Python. What a name stands
    for is part of it, whether a module of the project defines it or is installed. Statements that bind no name count in every file
    that is imported, since importing runs them.

    Args:
        without: modules of the package that decide nothing.
    """
    out = {file_of(module) for module in without}
    chosen = {place if isinstance(place, Path) else file_of(place) for place in places}
    loaded = [definition for file in files(places, without) for definition in _source(file).definitions]
    reached = [definition for definition in loaded if definition.file in chosen or not definition.binds]
    seen, meanings = set(reached), []
    for definition in reached:
        names = []
        for used, name, found in _edges(definition):
            kept = [other for other in found if other.file not in out]
            names.append([used, sorted(other.text for other in kept) or ("" if found else name)])
            reached += [other for other in kept if other not in seen]
            seen.update(kept)
        meanings.append(digest([definition.text, names]))
    return digest(sorted(set(meanings)))
