"""What a kill of DVC leaves of the files that it writes in place."""

import fcntl
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from dvc.cli import main

from stemrepro.pipeline.dvc_files import STATE, mend

pytestmark = pytest.mark.slow

LOCK = (
    "schema: '2.0'\nstages:\n  draw:\n    cmd: touch out\n    outs:\n    - path: out\n      hash: md5\n"
    "      md5: d41d8cd98f00b204e9800998ecf8427e\n      size: 0\n"
)


def dvc(folder, *words):
    """Call DVC in this process, which imports it once; return its exit code."""
    with chdir(folder):
        return main([*words])


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A DVC repository with one stage, run, and a plan in a folder of it."""
    folder = tmp_path_factory.mktemp("repository")
    assert dvc(folder, "init", "--no-scm", "-q") == 0
    for place in (folder, folder / "plan"):
        place.mkdir(exist_ok=True)
        (place / "dvc.yaml").write_text("stages:\n  draw:\n    cmd: touch out\n    outs: [out]\n")
    assert dvc(folder, "repro", "-q", "-P") == 0
    return folder


@pytest.fixture
def killed(repository, tmp_path):
    return shutil.copytree(repository, tmp_path / "killed", symlinks=True)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        (".dvc/tmp/rwlock", ""),
        (".dvc/tmp/rwlock", '{"write": {"a'),
        ("plan/dvc.lock", ""),
        ("plan/dvc.lock", LOCK[:60]),
        ("dvc.lock", LOCK[:25]),
        ("dvc.lock", LOCK[: LOCK.index("path")] + "path"),
    ],
)
def test_dvc_works_again_after_a_kill(killed, name, left):
    (killed / name).write_text(left)
    assert dvc(killed, "repro", "-P") != 0  # for ever: this is what is mended
    assert mend(killed) == [Path(name)]
    assert dvc(killed, "repro", "-P") == 0


def test_whole_files_stay(killed):
    before = {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()}
    assert mend(killed) == []
    assert {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("guard", ["lock", "rwlock.lock"])
def test_a_living_dvc_keeps_its_files(killed, guard):
    (killed / STATE / "rwlock").write_text("")
    with (killed / STATE / guard).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert mend(killed) == []
    assert mend(killed) == [STATE / "rwlock"]


def test_where_there_is_no_dvc_nothing_is_made(tmp_path):
    assert mend(tmp_path) == []
    assert not any(tmp_path.iterdir())
