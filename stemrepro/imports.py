"""Which code something rests on, computed from the imports: for the identity of a run and the dependencies of a pipeline stage."""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp

from stemrepro.errors import UserError
from stemrepro.files import digest
from stemrepro.syntax import canonical

PACKAGE = "stemrepro"
ROOT = Path(__file__).parent


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(PACKAGE, cache_dir=None)


def file_of(module: str) -> Path:
    """The file of one of the project's modules."""
    path = ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def closure(modules: Iterable[str], without: Iterable[str] = ()) -> set[str]:
    """Modules of the project and all that these import, directly or not, also inside functions.

    Args:
        without: modules that are left out, with what is imported through them alone.
    """
    found: set[str] = set()
    left = list(modules)
    for module in left:
        if module not in _graph().modules:
            raise ValueError(f"{module} is no module of {PACKAGE}")
        if module not in found and module not in without:
            found.add(module)
            left += _graph().find_modules_directly_imported_by(module)
    return found


def _tree(file: Path) -> ast.Module:
    """What a file says; UserError where that is no Python."""
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file} is not valid Python: {error}") from error


def _names(file: Path) -> Iterator[tuple[str, Path | None]]:
    """What a file imports that may be a module, each with the folder that a relative import starts from."""
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else None
            stem = f"{node.module}." if node.module else ""
            yield from ((f"{stem}{alias.name}", start) for alias in node.names)


def imported(file: Path) -> set[str]:
    """The project's modules that a file outside the package imports."""
    names = {name for name, start in _names(file) if not start}
    return (names | {name.rpartition(".")[0] for name in names}) & _graph().modules


def beside(file: Path) -> set[Path]:
    """The files outside the package that such a file imports, from its own folder or from the working directory, and `__init__.py` of
    the packages around them. What is installed is none of them."""
    found = set()
    for name, start in _names(file):
        parts = name.split(".")
        for place in (start,) if start else (file.parent, Path()):
            stems = [place.joinpath(*parts[: n + 1]) for n in range(len(parts))]
            found |= {path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")}
    return {path for path in found if path.is_file() and not path.absolute().is_relative_to(ROOT)}


def outside(files: Iterable[Path]) -> list[Path]:
    """Files outside the package, and all that these import, directly or not."""
    found = list(dict.fromkeys(files))
    for file in found:
        found += sorted(beside(file) - {*found})
    return found


def files(places: Iterable[str | Path], without: Iterable[str] = ()) -> list[Path]:
    """Every file that modules, or files outside the package, rest on; sorted. `without` as in `closure`."""
    own = outside(place for place in places if isinstance(place, Path))
    modules = [place for place in places if isinstance(place, str)]
    modules += [module for file in own for module in imported(file)]
    return sorted({*own, *map(file_of, closure(modules, without))})


def code_hashes(*places: str | Path, without: Iterable[str] = ()) -> dict[str, str]:
    """Short hashes of all files that modules, or files outside the package, rest on (12 hex digits), by path.

    A comment, a docstring or a line break changes nothing, nor does the version of Python.
    """
    hashes = {}
    for file in files(places, without):
        name = file.relative_to(ROOT.parent) if file.is_relative_to(ROOT.parent) else file
        hashes[name.as_posix()] = _hash(file)
    return hashes


@cache
def _hash(file: Path) -> str:
    return hashlib.sha256(canonical(_tree(file)).encode()).hexdigest()[:12]


def code_hash(*places: str | Path, without: Iterable[str] = ()) -> str:
    """One short hash of all of them."""
    return digest(code_hashes(*places, without=without))
