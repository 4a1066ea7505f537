"""What code something rests on: computed from imports, without comments."""

from pathlib import Path

import pytest

from stemrepro.errors import UserError
from stemrepro.imports import closure, code_hash, code_hashes, files
from stemrepro.scoring import DECIDE_NOTHING


def test_the_closure_follows_imports_also_inside_functions():
    found = closure(["stemrepro.training.train"])
    assert {"stemrepro.training.train", "stemrepro.training.module", "stemrepro.model.transformer"} <= found
    assert "stemrepro.model.specs" not in found  # an entry for another network is no reason to train again
    assert not {module for module in found if module.startswith(("stemrepro.report", "stemrepro.measures"))}
    with pytest.raises(ValueError, match=r"stemrepro\.nothing is no module"):
        closure(["stemrepro.nothing"])


def test_what_is_left_out_takes_what_only_it_imports():
    whole = closure(["stemrepro.evaluation.losses"])
    less = closure(["stemrepro.evaluation.losses"], DECIDE_NOTHING)
    assert {"stemrepro.model.cost", "stemrepro.model.specs"} <= whole - less
    assert "stemrepro.model.transformer" in less


def test_a_file_outside_the_package_brings_what_it_imports(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("from stemrepro.model.ffn import stem\nimport numpy")
    names = [path.name for path in files([own])]
    assert {"own.py", "stem.py", "base.py"} <= set(names)


def test_files_outside_the_package_are_followed_from_their_folder_and_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "my/rows.py": "import numpy, helper\nfrom my import parts\nfrom my.more.deep import f\nfrom stemrepro.model.ffn.base import FFN",
        "my/helper.py": "def g():\n    from .beside import x",  # the function isn't called before a forward pass
        "my/beside.py": "x = 1",
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
    rows = Path("my/rows.py")
    own = {path.as_posix() for path in files([rows]) if not path.is_absolute()}
    assert own == texts.keys() - {"my/unused.py"}
    assert own < code_hashes(rows).keys()
    Path("my/other.py").write_text("y = ")
    with pytest.raises(UserError, match=r"my/other\.py is not valid Python"):
        files([rows])


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
    hashes = []
    for number, text in enumerate(("def f(a):\n    return a + 1", change)):
        path = tmp_path / str(number) / "own.py"
        path.parent.mkdir()
        path.write_text(text)
        (value,) = code_hashes(path).values()
        hashes.append(value)
    assert (hashes[0] == hashes[1]) is same
    assert code_hash("stemrepro.files") != code_hash("stemrepro.errors")
