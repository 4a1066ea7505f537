"""What a source text means, the same in every version of Python: without comments, docstrings, imports and layout."""

import ast
import itertools
from collections.abc import Iterator

UNMEANT = ("kind", "type_comment", "type_ignores")
"""Fields of a syntax tree that say how something is written, not what."""
NOTHING = ("NoneType None", "[]")


def says_nothing(node: object) -> bool:
    """Is a statement a comment, an import, or no more than imports for a type checker? A text that stands alone is a comment."""
    if isinstance(node, ast.If):
        tested = getattr(node.test, "attr", getattr(node.test, "id", ""))
        return tested == "TYPE_CHECKING" and all(map(says_nothing, [*node.body, *node.orelse]))
    return isinstance(node, ast.Pass | ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _joined(values: list[ast.expr]) -> Iterator[ast.expr]:
    """Return the parts of an f-string; text that some versions of Python leave empty or in pieces is one."""
    for text, parts in itertools.groupby(values, lambda part: isinstance(part, ast.Constant)):
        if not text:
            yield from parts
        elif whole := "".join(part.value for part in parts):
            yield ast.Constant(whole)


def canonical(node: object) -> str:
    """Return a syntax tree as text: the same from every version of Python, and without comments, docstrings, imports and layout.

    A version knows fields that others don't; they are left out where they are empty, as code is that doesn't use them.
    """
    if isinstance(node, list):
        return f"[{','.join(canonical(part) for part in node if not says_nothing(part))}]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {hex(node) if type(node) is int else ascii(node)}"
    own = {name: value for name, value in ast.iter_fields(node) if name not in UNMEANT}
    if isinstance(node, ast.JoinedStr):
        own["values"] = list(_joined(node.values))
    texts = {name: canonical(own[name]) for name in sorted(own)}
    return f"{type(node).__name__}({','.join(f'{name}={text}' for name, text in texts.items() if text not in NOTHING)})"
