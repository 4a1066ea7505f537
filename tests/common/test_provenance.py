"""Which commit results name, and the advice where there is none."""

import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.common import provenance
from stemrepro.common.errors import UserError
from stemrepro.common.provenance import commit, no_repository, other_code
from stemrepro.pipeline.verify import committed_recipes
from tests.conftest import ROOT


def git(*command):
    author = ["-c", "user.name=t", "-c", "user.email=t@t"]
    return subprocess.run(["git", *author, *command], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty one that no repository lies around."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def repository(folder):
    """One commit with a file of recipes/."""
    (folder / "recipes").mkdir()
    (folder / "recipes/arms.yaml").write_text("dense: {}\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    return folder


def test_the_commit_and_whether_anything_differs_from_it(repository, monkeypatch):
    head = git("rev-parse", "HEAD")
    assert commit() == head
    monkeypatch.chdir("recipes")
    assert commit() == head
    monkeypatch.chdir(repository)
    (repository / "recipes/arms.yaml").write_text("other: {}\n")
    assert commit() == f"{head}+changes"
    assert no_repository() == ""


def test_a_repository_around_a_copy_is_another_ones(repository, monkeypatch):
    """Its commit says nothing of the files here."""
    (repository / "unpacked").mkdir()
    monkeypatch.chdir("unpacked")
    assert commit() == "unknown"
    with pytest.raises(UserError, match=r"path 'unpacked/' .* not in 'HEAD'"):
        committed_recipes(repository / "results")


def test_an_unpacked_archive_names_its_commit_and_a_clone_its_own(repository, monkeypatch):
    """Also where another repository lies around it."""
    (repository / "COMMIT").write_text("$Format:%H$\n")
    assert commit() == git("rev-parse", "HEAD")
    (repository / "unpacked").mkdir()
    monkeypatch.chdir("unpacked")
    (repository / "unpacked/COMMIT").write_text("$Format:%H$\n")
    assert commit() == "unknown"
    (repository / "unpacked/COMMIT").write_text("90f2922\n")
    assert commit() == "90f2922+unpacked"
    monkeypatch.setenv("PATH", "")
    assert commit() == "90f2922+unpacked"


def test_no_command_runs_other_code_than_the_folders_own(repository):
    """As in a copied clone, whose environment runs the first one's code."""
    (repository / "stemrepro").mkdir()
    assert other_code() == ""  # a folder that is no package, as a clone has from above
    (repository / "stemrepro/__init__.py").touch()
    assert other_code().startswith(f"the code that runs is {ROOT / 'stemrepro'}, not {repository / 'stemrepro'}: ")
    assert commit() == "unknown"
    done = CliRunner().invoke(app, ["plan", "--scale", "smoke"])
    assert (done.exit_code, done.stderr) == (2, f"stemrepro: {other_code()}\n")
    shutil.rmtree("stemrepro")
    (repository / "stemrepro").symlink_to(ROOT / "stemrepro")
    assert other_code() == ""
    assert commit() == git("rev-parse", "HEAD")


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize(
    ("first_lines", "code"),
    [
        ("#!{0}/.venv/bin/python", 0),
        ("#!/bin/sh\n'''exec' \"{0}/.venv/bin/python", 0),
        ("#!/bin/sh\n'''exec' \"/the first/.venv/bin/python", 2),
    ],
)
def test_make_refuses_an_environment_that_was_copied_or_moved(folder, first_lines, code):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, name)
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/dvc").write_text(first_lines.format(folder))
    for name in ("python", ".installed"):
        (folder / ".venv/bin" / name).touch()
    done = subprocess.run(["make", ".venv/bin/.installed"], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr.startswith(f".venv was made in another folder than {folder}; remove it") == bool(code)


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_says_what_is_missing_before_it_installs_anything(folder):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, name)
    done = subprocess.run(["make", "reproduce"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("DVC needs git and a repository here (fatal: not a git repository")
    assert not (folder / ".venv").exists()
    for command in done.stderr.splitlines()[0].rpartition("): ")[2].split(" && "):
        git(*command.split()[1:])
    assert subprocess.run(["make", "repository"]).returncode == 0


def test_a_processor_is_its_name_and_its_instruction_sets(monkeypatch):
    def described(flags):
        text = f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\n"
        monkeypatch.setattr(provenance.Path, "read_text", lambda *_, **__: text)
        return provenance.machine().partition(",")[0]

    assert described("avx avx2 fma") == "AMD EPYC [avx2]"
    assert described("avx avx2 avx512f avx512_bf16") == "AMD EPYC [avx2 avx512]"
    assert described("") == "AMD EPYC [unknown instruction sets]"
