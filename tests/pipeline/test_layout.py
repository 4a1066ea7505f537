"""`stemrepro init`: a folder to work in, from a clone and from a wheel."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from stemrepro.common.errors import UserError
from stemrepro.common.files import sha256
from stemrepro.pipeline.layout import lay_out
from tests.conftest import ROOT


def call(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != ".git")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_project_has_what_git_holds_of_recipes_and_analyses(tmp_path):
    lay_out(tmp_path / "deep/mine")
    laid = files(tmp_path / "deep/mine")
    assert {"Makefile", "recipes/arms.yaml", "recipes/scales/smoke.yaml", "analysis/rivals.py"} <= set(laid)
    assert {name: (ROOT / name).read_bytes() for name in laid} == laid
    assert not [name for name in laid if name.endswith(".pyc")]
    assert call("git", "status", "--porcelain", cwd=tmp_path / "deep/mine") == ""
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["mine"]


def test_an_empty_folder_is_filled_and_one_with_files_is_left_alone(tmp_path):
    lay_out(tmp_path)
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"exists and isn't empty; name a new folder, as in 'stemrepro init my-stem'"):
        lay_out(tmp_path)
    with pytest.raises(UserError, match="Makefile exists and isn't empty"):
        lay_out(tmp_path / "Makefile")
    assert files(tmp_path) == before


def test_where_git_fails_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match="a project needs git, which can't be run here"):
        lay_out(tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_wheel_brings_all_that_a_plan_needs(tmp_path):
    """Built without a network; its files are read from where an install puts them, with no clone in sight."""
    wheel, site, place = tmp_path / "wheel", tmp_path / "site", tmp_path / "place"
    place.mkdir()
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "wheel", *options, "-w", str(wheel), str(ROOT))
    (built,) = wheel.iterdir()
    zipfile.ZipFile(built).extractall(site)
    environment = os.environ | {"PYTHONPATH": str(site), "COLUMNS": "200"}

    def stemrepro(*words, folder=place):
        return call(sys.executable, "-m", "stemrepro.cli", *words, cwd=folder, env=environment)

    assert "init" in stemrepro("--help")
    assert "next: cd 'my stem' && make reproduce SCALE=smoke" in stemrepro("init", "my stem")
    lay_out(tmp_path / "of-the-clone")
    home = place / "my stem"
    assert files(home) == files(tmp_path / "of-the-clone")
    assert "runs" in stemrepro("plan", "--scale", "smoke", folder=home)
    stages = yaml.safe_load((home / "plan/dvc.yaml").read_text())["stages"]
    named = {dep for stage in stages.values() for dep in stage["deps"]}
    assert "plan/package.json" in named
    assert not [dep for dep in named if dep.startswith("stemrepro")]  # which isn't here
    assert f'"api.py": "{sha256(site / "stemrepro/api.py")}"' in (home / "plan/package.json").read_text()
    stemrepro("plan", "--check", "--scale", "smoke", folder=home)
    (site / "stemrepro/api.py").write_text("another version")
    done = subprocess.run(
        [sys.executable, "-m", "stemrepro.cli", "plan", "--check", "--scale", "smoke"],
        cwd=home, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert "plan/package.json no longer follows from recipes/ and the package" in done.stderr
