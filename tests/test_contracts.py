"""What holds of the whole tree: who may import what, and nothing that nothing reaches."""

import ast
import subprocess
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

from stemrepro.common.code_hash import PACKAGE, file_of, files
from stemrepro.config.address import MAIN, Address
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures import store
from stemrepro.measures.base import measure_module
from stemrepro.model.ffn.base import ffns
from stemrepro.model.memory.base import memories
from stemrepro.model.names import OWN_FILE, memory_module, module_of
from stemrepro.sweeps.trials import read_sweep
from tests.conftest import ROOT

NAMED = {
    "stemrepro.cli.__main__": "stemrepro/cli/__main__.py",  # python -m, by commands that start others
    "stemrepro.evaluation.task_items": "stemrepro/evaluation/tasks/_choice.yaml",
    "stemrepro.common.fork_server": "stemrepro/common/workers.py",  # the first thing that the fork server imports
    "stemrepro.common.fork_server_avx512": "stemrepro/pipeline/runs.py",
    "stemrepro.training.fork_server": "stemrepro/pipeline/runs.py",
    "stemrepro.offload.offload": "docs/howto.md",
    "stemrepro.offload.row_cache": "stemrepro/offload/offload.py",
    "stemrepro.offload.link": "stemrepro/offload/offload.py",
    "stemrepro.offload.gather": "stemrepro/offload/link.py",
}
"""Modules that no other imports, and the file that names them."""


def test_import_boundaries(monkeypatch):
    """The contracts of pyproject.toml."""
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0


@pytest.mark.parametrize("path", sorted(ROOT.glob("analysis/*.py")), ids=lambda path: path.stem)
def test_an_analysis_collects_and_draws(catalog, path):
    """Reading and measuring is the measures' part; and each belongs to a recipe."""
    assert path.stem in catalog.recipes
    assert "stemrepro.training" not in path.read_text(encoding="utf-8")
    assert not {file_of("stemrepro.training.train"), file_of("stemrepro.evaluation.lm")} & {*files([path])}


def test_no_module_that_nothing_reaches(catalog):
    scores = [f"stemrepro.evaluation.{name}" for name in SCORE_KINDS]
    roots = ["stemrepro.cli", "stemrepro.training.train", *scores]
    measures = {measure_module(recipe.measure).__name__ for recipe in catalog.recipes.values()}
    roots += [*measures, *map(module_of, ffns())]
    roots += map(memory_module, memories())
    studies = ("rows", "sizes", "premise", "edits", "scoreboard", "spread", "capacity", "conversion", "serving")
    roots += [f"stemrepro.published.{study}" for study in studies]
    lost = {*PACKAGE.rglob("*.py")} - {*files([*roots, *ROOT.glob("analysis/*.py")])}
    exported = {*PACKAGE.glob("convert/huggingface/*.py")}  # copied into other folders, and run there
    assert lost - exported == {*map(file_of, NAMED)}
    named = {name.removesuffix(".__main__"): file for name, file in NAMED.items()}
    assert all(name in (ROOT / file).read_text() for name, file in named.items())


def unnamed_encodings(code):
    """Lines that read or write a file of text in whichever encoding the locale has."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        mode = ast.unparse(keywords.get("mode") or ast.List(node.args[1:2]))
        called = ast.unparse(node.func)
        of_text = called.endswith((".read_text", ".write_text")) or (called == "open" and "b" not in mode)
        if of_text and "encoding" not in keywords:
            yield node.lineno


def test_every_file_of_text_has_a_named_encoding():
    """Else it is another one where the locale isn't UTF-8."""
    assert list(unnamed_encodings("a.read_text()\nopen('b')\nopen('b', 'w')\nopen('b', mode='rb')")) == [1, 2, 3]
    files = [path for folder in ("stemrepro", "analysis", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    unnamed = {path.name: list(unnamed_encodings(path.read_text(encoding="utf-8"))) for path in files}
    assert {name: lines for name, lines in unnamed.items() if lines} == {}


def test_no_network_or_variant_that_nothing_names(catalog):
    assert {arm.ffn for arm in catalog.arms.values() if not OWN_FILE.fullmatch(arm.ffn)} == set(ffns())
    named = {variant for recipe in catalog.recipes.values() for variant in recipe.variants}
    named |= {read_sweep(path).variant for path in (ROOT / "recipes/sweeps").glob("*.yaml") if path.stem != "dvc"}
    assert named - {MAIN} == set(catalog.variants)


def test_no_arm_that_nothing_trains(catalog):
    files = sorted((ROOT / "recipes/sweeps").glob("*.yaml"))
    sweeps = [read_sweep(path) for path in files if path.name != "dvc.yaml"]
    named = {arm for recipe in catalog.recipes.values() for arm in recipe.arms}
    named |= {arm for sweep in sweeps for arm in sweep.space["arm"]}
    assert named == set(catalog.arms)


def test_no_committed_scores_that_no_recipe_reads(catalog):
    shown = subprocess.run(["git", "ls-files", "scores"], cwd=ROOT, capture_output=True, text=True)
    if shown.returncode or not shown.stdout:
        pytest.skip("no clone: nothing is committed")
    files = [Path(line) for line in shown.stdout.splitlines() if line.endswith("protocol.parquet")]
    wanted = {
        (part, a) for recipe in catalog.recipes.values() for a, parts in recipe.scored().items() for part in parts
    }
    committed = {(kind, Address(*at)) for file in files for kind, *at in store.protocol(ROOT / file.parent)}
    assert committed
    assert committed <= wanted
