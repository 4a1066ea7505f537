"""The code that a result rests on, for the identity of a run and the dependencies of a pipeline stage.

It is the set of definitions that are reached by name. Their file and their docstrings decide nothing:
code can be moved.
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
"""The modules that make a hash; they are no part of what is hashed."""
SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
COMPREHENSIONS = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
"""Parts of code whose names aren't their file's."""


@dataclass(frozen=True, eq=False)
class Definition:
    """A statement at the top of a file: a function, a class, an assignment, or one that acts.

    Attributes:
        text: what it says (12 hex digits).
        binds: the names that it gives its file; none if it only acts.
        uses: the dotted names in it; of F.silu(x) "F.silu" and "x".
        imports: the full names of what is imported in it, as in `Source`.
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
        imports: the full dotted names of each name that is imported at its top. There are several where an import has
            another to fall back on; a relative import has a dot in front for each level.
        files: that it imports, also inside functions, with the __init__.py of their packages.
    """

    definitions: list[Definition]
    imports: dict[str, list[str]]
    files: frozenset[Path]

    def named(self, name: str) -> list[Definition]:
        """Return the definitions that bind a name."""
        return [definition for definition in self.definitions if name in definition.binds]


def _binds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, SCOPES):
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
    full_names: dict[str, list[str]] = {}
    for node in nodes:
        for name, full_name in _imports(node):
            full_names.setdefault(name, []).append(full_name)
    return full_names


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
    """Read a file; UserError where it is no Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file} is not valid Python: {error}") from error
    definitions = [
        Definition(file, digest(canonical(node)), frozenset(_binds(node)), frozenset(_uses(node)), _by_name([node]))
        for node in tree.body
        if not says_nothing(node)
    ]
    top = _by_name(node for node in tree.body if not isinstance(node, SCOPES))
    homes = {_split(name, file)[0] for name in {name for _, name in _imports(tree)}} - {None}
    above = {folder / "__init__.py" for home in homes for folder in home.parents if folder != PACKAGE.parent}
    return Source(definitions, top, frozenset(homes | {path for path in above if path.is_file()}))


def file_of(module: str, file: Path | None = None) -> Path | None:
    """Return the file of a module, or None for an installed one.

    Args:
        module: of the package, or what a file outside it imports from its folder or from the working directory.
        file: the file that imports it.
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
        if home := file_of(dots + ".".join(parts[:length]), file):
            return home, parts[length:]
    return None, parts


def _find(name: str, file: Path) -> list[Definition]:
    """Return the definitions of a dotted name that a file imports; none for what is installed."""
    home, rest = _split(name, file)
    if home is None:
        return []
    source = _source(home)
    if not rest or not (source.named(rest[0]) or rest[0] in source.imports):
        return source.definitions
    definitions = source.named(rest[0])
    for full_name in source.imports.get(rest[0], ()):
        definitions += _find(".".join([full_name, *rest[1:]]), home)
    return definitions


@cache
def _edges(definition: Definition) -> list[tuple[str, str, list[Definition]]]:
    """Return each dotted name in a definition that is defined or imported.

    Returns:
        the name, the name that it is imported by or "", and its definitions.
    """
    source = _source(definition.file)
    imports = source.imports | definition.imports
    edges = []
    for used in sorted(definition.uses):
        first, dot, rest = used.partition(".")
        names = [name + dot + rest for name in imports.get(first, ())]
        edges += [(used, name, _find(name, definition.file)) for name in names]
        if definitions := source.named(first):  # also where an import has it to fall back on
            edges.append((used, "", definitions))
    return edges


def files(places: Iterable[str | Path], without: Iterable[str] = ()) -> list[Path]:
    """Return every file that is imported, directly or not, also inside functions; sorted.

    Args:
        places: modules, and files outside the package, that import.
        without: modules of the package that are left out, with what is imported through them alone.

    Raises:
        ValueError: there is no such module.
    """
    out = {file_of(module) for module in without}
    reached = []
    for place in places:
        file = place if isinstance(place, Path) else file_of(place)
        if file is None:
            raise ValueError(f"{place} is no module of {PACKAGE.name}")
        reached.append(file)
    for file in reached:
        reached += _source(file).files - {*reached} - out
    return sorted(set(reached) - out)


def code_hash(*places: str | Path, without: Iterable[str] = ()) -> str:
    """Return a short hash of all definitions of some places and of all that they reach by name (12 hex digits).

    A comment, a docstring, a line break or a move to another file changes nothing, nor does the version of Python.
    The meaning of a name is part of the hash, whether the project defines it or it is installed.
    Statements that bind no name count in every file that is imported, since importing runs them.

    Args:
        places: modules, or files outside the package.
        without: modules of the package that decide nothing.
    """
    out = {file_of(module) for module in without}
    chosen = {place if isinstance(place, Path) else file_of(place) for place in places}
    loaded = [definition for file in files(places, without) for definition in _source(file).definitions]
    reached = [definition for definition in loaded if definition.file in chosen or not definition.binds]
    seen, meanings = set(reached), []
    for definition in reached:
        names = []
        for used, name, definitions in _edges(definition):
            kept = [other for other in definitions if other.file not in out]
            names.append([used, sorted(other.text for other in kept) or ("" if definitions else name)])
            reached += [other for other in kept if other not in seen]
            seen.update(kept)
        meanings.append(digest([definition.text, names]))
    return digest(sorted(set(meanings)))
