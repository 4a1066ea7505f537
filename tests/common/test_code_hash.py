"""What code something rests on: what its names reach, wherever that stands."""

import ast
import shutil
from pathlib import Path

import grimp
import pytest

from stemrepro.common import code_hash as imports
from stemrepro.common.code_hash import HASHING, PACKAGE, code_hash, file_of, files
from stemrepro.common.errors import UserError
from stemrepro.model.ffn.loading import ffn_class
from stemrepro.model.ffn.naming import module_of
from stemrepro.model.ffn.stem import Stem
from stemrepro.model.specs import FFNS
from stemrepro.pipeline.score import DECIDE_NOTHING


@pytest.fixture(autouse=True)
def _nothing_read():
    """What is read is kept by its path, which another test may have had for another file."""
    imports._source.cache_clear()


def test_files_are_those_that_an_import_graph_reaches():
    """Also inside functions; grimp's graph is the oracle."""
    graph = grimp.build_graph(PACKAGE.name, cache_dir=None)
    start = "stemrepro.training.train"
    reached = {start} | graph.find_upstream_modules(start)
    reached |= {name for name in graph.modules if any(other.startswith(f"{name}.") for other in reached)}
    assert {*files([start])} == {*map(file_of, reached)}
    assert file_of("stemrepro.model.specs") not in files(
        [start]
    )  # an entry for another network is no reason to train again
    with pytest.raises(ValueError, match=r"stemrepro\.nothing is no module"):
        files(["stemrepro.nothing"])


def test_what_is_left_out_takes_what_only_it_imports():
    whole = files(["stemrepro.evaluation.losses"])
    less = files(["stemrepro.evaluation.losses"], DECIDE_NOTHING)
    assert {*map(file_of, ("stemrepro.model.cost", "stemrepro.model.specs"))} <= {*whole} - {*less}
    assert file_of("stemrepro.model.transformer") in less


def test_files_outside_the_package_are_followed_from_their_folder_and_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "my/rows.py": "import numpy, helper\nfrom my import parts\nfrom my.more.deep import f\n"
        "from stemrepro.model.ffn.base import FFN",
        "my/helper.py": "def g():\n    from .nearby import x",  # the function isn't called before a forward pass
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
    imports._source.cache_clear()
    with pytest.raises(UserError, match=r"my/other\.py is not valid Python"):
        files([Path("my/rows.py")])


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A copy of the package, whose code is hashed in place of the package's."""
    place = tmp_path / PACKAGE.name
    shutil.copytree(
        PACKAGE, place, ignore=lambda _, names: [name for name in names if "." in name and not name.endswith(".py")]
    )
    monkeypatch.setattr(imports, "PACKAGE", place)
    return place


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def rename_everywhere(house, old, new):
    for path in house.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(old, new), encoding="utf-8")


def move_a_file(house):
    (house / "model/transformer.py").rename(house / "model/decoder.py")
    rename_everywhere(house, "stemrepro.model.transformer", "stemrepro.model.decoder")


def move_a_helper(house):
    """To a file that nothing of a training's imported."""
    text = (house / "training/module.py").read_text(encoding="utf-8")
    (helper,) = (node for node in ast.parse(text).body if getattr(node, "name", "") == "mean_loss")
    code = ast.get_source_segment(text, helper)
    edit(house / "training/module.py", code, "from stemrepro.model.cost import mean_loss")
    with (house / "model/cost.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\nimport torch\nfrom torch import Tensor\n\n\n{code}\n")


def reword(house):
    edit(
        house / "model/ffn/stem.py", '"""Apply the network: x [batch, seq, width], ', '"""Of x [batch, seq, width] and '
    )
    edit(house / "training/train.py", "\n\n\n", "\n\n\n# why\n")


def reorder(house):
    """Definitions; and import something that nothing uses."""
    path = house / "training/schedule.py"
    first, *others = ast.parse(path.read_text(encoding="utf-8")).body
    path.write_text("\n".join(map(ast.unparse, [first, *reversed(others)])), encoding="utf-8")
    edit(house / "data/blocks.py", "import numpy as np", "import numpy\nimport numpy as np")


def codes():
    """The identity of a run's code, by network."""
    imports._source.cache_clear()
    return {ffn: code_hash("stemrepro.training.train", module_of(ffn), without=HASHING) for ffn in FFNS}


@pytest.mark.parametrize("change", [move_a_file, move_a_helper, reword, reorder], ids=lambda change: change.__name__)
def test_what_moves_or_is_reworded_keeps_every_identity(house, change):
    before = codes()
    assert len(set(before.values())) == len(FFNS)
    change(house)
    assert codes() == before


def test_a_changed_sign_changes_the_networks_with_that_equation(house):
    before = codes()
    edit(house / "model/ffn/stem.py", "F.silu(self.gate(x)) * self.rows", "F.silu(-self.gate(x)) * self.rows")
    changed = {ffn for ffn, code in codes().items() if code != before[ffn]}
    assert changed == {ffn for ffn in FFNS if issubclass(ffn_class(ffn), Stem)} != set(FFNS)
    edit(house / "model/loss.py", "logits.float()", "-logits.float()")
    assert not set(before.values()) & set(codes().values())


ROWS = "import math\nfrom parts import first, second\n\n\ndef f(x):\n    return first(x) - second(x) + math.sin(x)\n"
PARTS = """
import numpy
TWO = 2
try:
    from other import fast
except ImportError:
    def fast(x): return x
def first(x): return numpy.abs(x) * TWO
def second(x): return third(x)
def third(x):
    import other
    return fast(other.abs(x))
def unused(x): return x
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("parts.py", "def unused(x): return x", "def unused(x): return 3", True),
        ("parts.py", "def unused(x): return x", "def unused(x):\n    import yaml as numpy", True),
        ("parts.py", "import numpy", "import numpy, yaml", True),
        ("parts.py", "import numpy", "import yaml as numpy", False),
        ("parts.py", "TWO = 2", "TWO = 3", False),
        ("parts.py", "TWO = 2", "TWO = 2\nTWO += 1", False),
        ("parts.py", "TWO = 2", "TWO = 2\nif numpy.x: TWO = 3", False),
        ("parts.py", "import numpy", "import numpy\nnumpy.seterr(over='raise')", False),  # importing runs it
        ("parts.py", "import other", "import numpy as other", False),
        ("parts.py", "def fast(x): return x", "def fast(x): return -x", False),  # what an import falls back on
        ("parts.py", "    def fast(x): return x", "    from nearby import abs as fast", False),
        ("parts.py", "    from other import fast", "    from numpy import fast", False),
        ("other.py", "def fast(x): return x", "def fast(x): return -x", False),
        ("other.py", "def abs(x): return x", "def abs(x): return -x", False),
        ("other.py", "def abs(x): return x", "from numpy import abs", False),
        ("other.py", "def abs(x): return x", "from nearby import abs", True),
        ("rows.py", "import math", "import cmath as math", False),
        ("rows.py", "import first, second", "import second as first, first as second", False),
        ("rows.py", "math.sin", "math.cos", False),
        ("rows.py", "import math", "import math\nif math.TYPE_CHECKING: from other import X", True),
        ("rows.py", "import math", "import math\nif math.pi: from other import X", False),  # which may act
    ],
)
def test_what_is_reached_by_name_decides(tmp_path, file, old, new, same):
    place = tmp_path / "rows.py"
    texts = {
        "rows.py": ROWS,
        "parts.py": PARTS,
        "other.py": "def abs(x): return x\ndef fast(x): return x\n",
        "nearby.py": "def abs(x): return x\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    imports._source.cache_clear()
    before = code_hash(place)
    edit(tmp_path / file, old, new)
    imports._source.cache_clear()
    assert (code_hash(place) == before) is same


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("# why\ndef f(a):\n    return a + 1", True),
        ('"""What."""\ndef f(a):\n    """How."""\n    return a + 1', True),
        ("def f(a): return (a\n  + 1)", True),
        ("def f(a):\n    return a - 1", False),
        ("def f(b):\n    return b + 1", False),
        ("def f(a):\n    return a + 1\n\nx = 'text'", False),
    ],
)
def test_comments_docstrings_and_layout_change_nothing(tmp_path, change, same):
    places = [tmp_path / name for name in ("one.py", "two.py")]
    for place, text in zip(places, ("def f(a):\n    return a + 1", change), strict=True):
        place.write_text(text)
    assert (code_hash(places[0]) == code_hash(places[1])) is same
