"""What a source text means, the same in every version of Python: without comments, docstrings, imports and layout."""

import ast
import itertools
from collections.abc import Iterator

UNMEANT = ("kind", "type_comment", "type_ignores")
"""Fields of a syntax tree that say how something is written, not what."""
NOTHING = ("NoneType None", "[]")


def says_nothing(node: object) -> bool:
    """Tell whether a statement is a comment, an import, or only imports for a type checker.

    A string that stands alone is a comment.
    """
    if isinstance(node, ast.If):
        tested = getattr(node.test, "attr", getattr(node.test, "id", ""))
        return tested == "TYPE_CHECKING" and all(map(says_nothing, [*node.body, *node.orelse]))
    return isinstance(node, ast.Pass | ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _joined(values: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield the parts of an f-string; text that some versions of Python leave empty or in pieces is one part."""
    for text, parts in itertools.groupby(values, lambda part: isinstance(part, ast.Constant)):
        if not text:
            yield from parts
        elif whole := "".join(part.value for part in parts):
            yield ast.Constant(whole)


def canonical(node: object) -> str:
    """Return a syntax tree as text, the same in every version of Python.

    Comments, docstrings, imports and layout are left out.

    Some fields exist in some versions alone; empty fields are left out, so that other code gives equal text.
    """
    if isinstance(node, list):
        return f"[{','.join(canonical(part) for part in node if not says_nothing(part))}]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {hex(node) if type(node) is int else ascii(node)}"
    fields = {name: value for name, value in ast.iter_fields(node) if name not in UNMEANT}
    if isinstance(node, ast.JoinedStr):
        fields["values"] = list(_joined(node.values))
    texts = {name: canonical(fields[name]) for name in sorted(fields)}
    return f"{type(node).__name__}({','.join(f'{name}={text}' for name, text in texts.items() if text not in NOTHING)})"
