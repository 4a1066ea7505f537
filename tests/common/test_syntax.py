"""Every version of Python writes code's meaning alike; else another version would take finished runs for other runs."""

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stemrepro.common.syntax import canonical
from tests.conftest import ROOT

TRICKY = r'''
from __future__ import annotations
import a.b as c, d
from . import (e, f as g)

@decorated(1, *args, key=0x1F, **more)
@other
class C(Base, metaclass=M):
    "a docstring"
    x: int = 1_000
    y: "dict[str, list[int | None]]"

    async def f(self, a, /, b: int = 2, *c: *Ts, d=..., **e) -> None:
        """Another."""
        async with open(a) as b, (c): pass
        async for x in y: await z
        return

    def nothing(self): ...

def g(n=10**20, big=123456789012345678901234567890):
    global h; other = lambda *a, k=1: (yield)
    x = [*a, *b]; y = {**a, "k": None, 1: 2}; z = {*a}
    first, *rest = x[1:2, ..., ::3]
    while (n := len(a)) > 0 <= 5 != 7 is not None: break
    else: del x, y[0]
    try: raise E from None
    except* (A, B) as error: pass
    finally: assert x, f"{x!r:>{width}}"
    match point:
        case [1, -2.5, 3 + 4j, *_] | (None | True): pass
        case {"a": 1, **rest} if rest: return x @ y // z ** -w << 1 >> 2 & ~3 | 4 ^ 5
        case Point(x=0, y=(1 | 2) as z): return not a and b or c in d
        case "text" | b"bytes": return None

s = "é\ud800\U0001f600" "two" u"three" R"\n"; t = b"\x00\xff" b"more"; nan, inf = -0.0, 1e999; i = 1J
u = f"{a}{{b}}{c!r:{d}.{e}}{g=}" "tail" f"" if 1 else f"{h:}"
v = f"{'x' 'y'}{z:%H:%M}{w:{v}}" ''
'''
HASH = "f89ecf796f80"
HASHES = """
import ast, hashlib, json, runpy, sys
canonical = runpy.run_path(sys.argv[1])["canonical"]
texts = {path: canonical(ast.parse(open(path, "rb").read())) for path in sys.argv[2:]}
print(json.dumps({path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}))
"""


def pythons() -> list[str]:
    """An interpreter of each version on this machine that the project runs under: on the path, and next to this one."""
    names = ["python3", *(f"python3.{minor}" for minor in range(11, 16))]
    paths = [*filter(None, map(shutil.which, names)), *map(str, Path(sys.base_prefix).parent.glob("*/bin/python3"))]
    versions = {}
    for path in [sys.executable, *paths]:
        answer = subprocess.run(
            [path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
        )
        if not answer.returncode and (version := tuple(map(int, answer.stdout.split()))) >= (3, 11):
            versions.setdefault(version, path)
    return list(versions.values())


def test_a_tricky_text_has_the_hash_that_it_always_had():
    assert hashlib.sha256(canonical(ast.parse(TRICKY)).encode()).hexdigest()[:12] == HASH


@pytest.mark.slow
def test_every_python_on_this_machine_hashes_the_package_alike(tmp_path):
    (tmp_path / "tricky.py").write_text(TRICKY, encoding="utf-8")
    package = [path for path in sorted(ROOT.glob("stemrepro/**/*.py")) if len(ast.parse(path.read_bytes()).body) > 1]
    command = [HASHES, *map(str, [ROOT / "stemrepro/common/syntax.py", tmp_path / "tricky.py", *package])]
    runs = [
        subprocess.run([python, "-c", *command], capture_output=True, text=True, check=True) for python in pythons()
    ]
    first, *others = [json.loads(run.stdout) for run in runs]
    assert len(set(first.values())) == len(package) + 1
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("f'{a:{b}}'", "f'{a:{b}}' ''", True),
        ("if a:\n    pass", "if a:\n    'why'", True),
        ("def f(): 'doc'", "def f(): pass", True),
        ("x = u'a'", "x = 'a'", True),
        ("x = 'a'", "x = b'a'", False),
        ("x = 1", "x = 1.0", False),
        ("x = 1", "x = True", False),
        ("x = None", "x = ...", False),
        ("x: int", "x: int = None", False),
        ("f'{a}'", "f'{a!s}'", False),
        ("f'{a}b'", "f'{a}c'", False),
        ("{**a}", "{None: a}", False),
        ("a[:]", "a[None:]", False),
    ],
)
def test_what_means_the_same_is_the_same_text(one, other, same):
    assert (canonical(ast.parse(one)) == canonical(ast.parse(other))) is same
