"""The identity of code: what a file says and what it imports, in every version of Python."""

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stemrepro.common import code_hash as module
from stemrepro.common.code_hash import PACKAGE, canonical, code_hash, file_of, files
from stemrepro.common.errors import UserError
from stemrepro.model.names import module_of
from stemrepro.pipeline.score import DECIDE_NOTHING
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
HASH = "4ba4739b626b"


@pytest.fixture(autouse=True)
def _nothing_read():
    """What is read is kept by its path, which another test may have had for another file."""
    module._read.cache_clear()


def test_files_are_those_that_an_import_graph_reaches():
    """Also inside functions; grimp's graph is the oracle."""
    graph = pytest.importorskip("grimp").build_graph(PACKAGE.name, cache_dir=None)
    start = "stemrepro.training.train"
    reached = {start} | graph.find_upstream_modules(start)
    reached |= {name for name in graph.modules if any(other.startswith(f"{name}.") for other in reached)}
    assert {*files([start])} == {*map(file_of, reached)}
    assert file_of("stemrepro.model.ffn.blend") not in files([start])  # another network is no reason to train again
    with pytest.raises(ValueError, match=r"stemrepro\.nothing is no module"):
        files(["stemrepro.nothing"])


def test_what_is_left_out_takes_what_only_it_imports():
    whole, less = (files(["stemrepro.evaluation.losses"], out) for out in ([], DECIDE_NOTHING))
    assert {*map(file_of, ("stemrepro.model.cost", "stemrepro.model.counting"))} <= {*whole} - {*less}
    assert file_of("stemrepro.model.transformer") in less


def test_files_outside_the_package_are_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "my/rows.py": "import numpy, helper\nfrom my import parts\nfrom my.more.deep import f\n"
        "from stemrepro.model.ffn.base import FFN",
        "my/helper.py": "def g():\n    from .nearby import x",
        "my/nearby.py": "x = 1",
        "my/parts.py": "import my.rows",
        "my/more/__init__.py": "",
        "my/more/deep.py": "from . import level\nfrom ..other import y",
        "my/more/level.py": "",
        "my/other.py": "",
        "my/unused.py": "",
    }
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    reached = files([Path("my/rows.py")])
    assert {path.as_posix() for path in reached if not path.is_absolute()} == texts.keys() - {"my/unused.py"}
    assert file_of("stemrepro.model.ffn.base") in reached
    Path("my/other.py").write_text("y = ")
    module._read.cache_clear()
    with pytest.raises(UserError, match=r"my/other\.py is not valid Python"):
        files([Path("my/rows.py")])


def test_a_changed_sign_changes_the_networks_with_that_equation(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="networks are torch's")
    from stemrepro.model.ffn.base import ffn_class, ffns
    from stemrepro.model.ffn.stem import Stem

    copy = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=lambda _, names: [n for n in names if "." in n and not n.endswith(".py")])
    monkeypatch.setattr(module, "PACKAGE", copy)

    def codes():
        module._read.cache_clear()
        return {ffn: code_hash("stemrepro.training.train", module_of(ffn)) for ffn in ffns()}

    def edit(path, old, new):
        text = (copy / path).read_text(encoding="utf-8")
        assert old in text
        (copy / path).write_text(text.replace(old, new), encoding="utf-8")

    before = codes()
    assert len(set(before.values())) == len(ffns())
    edit("model/ffn/stem.py", '"""Return what stands', '"""What stands')
    edit("training/train.py", "\n\n\n", "\n\n\n# why\n")
    assert codes() == before
    edit("model/ffn/stem.py", "F.silu(self.gate(x)) * self.rows", "F.silu(-self.gate(x)) * self.rows")
    changed = {ffn for ffn, code in codes().items() if code != before[ffn]}
    assert changed == {ffn for ffn in ffns() if issubclass(ffn_class(ffn), Stem)} != set(ffns())
    edit("model/loss.py", "logits.float()", "-logits.float()")
    assert not set(before.values()) & set(codes().values())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("def f(a):\n    return a + 1", "# why\ndef f(a):\n    return a + 1", True),
        ("def f(a):\n    return a + 1", '"""What."""\ndef f(a):\n    """How."""\n    return (a\n  + 1)', True),
        ("def f(a):\n    return a + 1", "def f(a):\n    return a - 1", False),
        ("def f(a):\n    return 1", "def f(a):\n    return 2", False),
        ("def f(a):\n    a = 1", "def f(a):\n    pass", False),
        ("import math", "import cmath as math", False),
        ("f'{a:{b}}'", "f'{a:{b}}' ''", True),
        ("f'{a}'", "f'{a!s}'", False),
        ("f'{a}b'", "f'{a}c'", False),
        ("x = u'a'", "x = 'a'", True),
        ("x = 'a'", "x = b'a'", False),
        ("x = 1", "x = 1.0", False),
        ("x = a[:]", "x = a[None:]", False),
    ],
)
def test_comments_docstrings_and_layout_change_nothing_and_all_else_does(one, other, same):
    assert (canonical(ast.parse(one)) == canonical(ast.parse(other))) is same


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
    """Else another version of Python would take finished runs for other runs."""
    assert hashlib.sha256(canonical(ast.parse(TRICKY)).encode()).hexdigest()[:12] == HASH


@pytest.mark.slow
def test_every_python_on_this_machine_reads_the_package_alike(tmp_path):
    (tmp_path / "tricky.py").write_text(TRICKY, encoding="utf-8")
    paths = [tmp_path / "tricky.py", *sorted(ROOT.glob("stemrepro/**/*.py"))]
    source = f"""
import ast, hashlib, itertools, json, sys
{Path(module.__file__).read_text(encoding="utf-8").partition("def canonical")[1]}{
        Path(module.__file__).read_text(encoding="utf-8").partition("def canonical")[2].partition("def file_of")[0]
    }
texts = [canonical(ast.parse(open(path, "rb").read())) for path in sys.argv[1:]]
print(json.dumps([hashlib.sha256(text.encode()).hexdigest() for text in texts]))
"""
    source = source.replace("UNMEANT", repr(module.UNMEANT))
    runs = [
        subprocess.run([python, "-c", source, *map(str, paths)], capture_output=True, text=True, check=True)
        for python in pythons()
    ]
    first, *others = [json.loads(run.stdout) for run in runs]
    assert len(first) == len(paths)
    assert all(other == first for other in others)
