"""Which code something rests on, computed from the imports: for the identity of a run and the dependencies of a pipeline stage."""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp

from stemrepro.errors import UserError
from stemrepro.files import digest

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


def imported(file: Path) -> set[str]:
    """The project's modules that a file outside the package imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name in _graph().modules}


def files(places: Iterable[str | Path], without: Iterable[str] = ()) -> list[Path]:
    """Every file of the project that modules, or files outside the package, rest on; sorted. `without` as in `closure`."""
    own = [place for place in places if isinstance(place, Path)]
    modules = [place for place in places if isinstance(place, str)]
    modules += [module for file in own for module in imported(file)]
    return sorted({*own, *map(file_of, closure(modules, without))})


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements but for texts that stand alone, which are comments."""
    for statement in body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield statement


@cache
def _meaning(file: Path) -> str:
    """The code of a file without comments, docstrings and layout."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file} is not valid Python: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = list(_statements(node.body)) or ([] if isinstance(node, ast.Module) else [ast.Pass()])
    return ast.unparse(tree)


def code_hashes(*places: str | Path, without: Iterable[str] = ()) -> dict[str, str]:
    """Short hashes of all files that modules, or files outside the package, rest on (12 hex digits), by path.

    A comment, a docstring or a line break changes nothing; another version of Python may write the same code otherwise.
    """
    hashes = {}
    for file in files(places, without):
        name = file.relative_to(ROOT.parent) if file.is_relative_to(ROOT.parent) else file
        hashes[name.as_posix()] = hashlib.sha256(_meaning(file).encode()).hexdigest()[:12]
    return hashes


def code_hash(*places: str | Path, without: Iterable[str] = ()) -> str:
    """One short hash of all of them."""
    return digest(code_hashes(*places, without=without))
