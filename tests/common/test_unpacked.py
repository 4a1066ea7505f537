"""What results say of their commit where there is no git."""

import hashlib
from pathlib import Path

import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.unpacked import bundled


@pytest.fixture
def unpacked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"stemrepro/a.py": b"a", "results/b.json": b"b", "COMMIT": b"90f2922\n"}
    for path, content in files.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(content)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in files.items()]
    Path("MANIFEST.sha256").write_text("".join(lines))


def test_a_clone_is_no_bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bundled() == {}


def test_results_are_made_anew_and_code_is_edited(unpacked):
    assert bundled() == {"commit": "90f2922"}
    Path("results/b.json").write_text("made anew")
    assert bundled() == {"commit": "90f2922"}
    Path("stemrepro/a.py").write_text("edited")
    assert bundled() == {"commit": "90f2922+changes"}
    Path("stemrepro/a.py").unlink()
    assert bundled() == {"commit": "90f2922+changes"}


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("no hash")])
def test_a_damaged_manifest_is_named(unpacked, damage):
    damage(Path("MANIFEST.sha256"))
    with pytest.raises(UserError, match=r"MANIFEST.sha256 is missing or damaged .*; take it from the bundle again"):
        bundled()
