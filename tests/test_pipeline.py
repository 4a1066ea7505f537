"""Recipes end to end at the smoke scale, in a fresh repository, by the commands that users type; then what DVC thinks has to run
again after an edit. The recipes of the comparison, with four times as many runs, are in test_analyses.py."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from stemrepro.claims import VERDICTS
from tests.conftest import ROOT

SKIPPED = shutil.ignore_patterns(
    ".git",
    ".venv",
    "data",
    "runs",
    "scores",
    "smoke",
    "sweeps",
    "cache",
    "tmp",
    "__pycache__",
    "dvc.lock",
    "*.egg-info",
)


RECIPES = (
    "validation_loss",
    "benchmark_scores",
    "cost_model",
    "angular_spread",
    "long_context_capacity",
    "paper_audit",
)
TARGETS = tuple(f"{name}@smoke" for name in RECIPES)


class Project:
    """A copy of the project in a repository of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.left = folder, set()
        for name in ("stemrepro", "recipes", "analysis", ".dvc"):
            shutil.copytree(
                ROOT / name,
                folder / name,
                ignore=SKIPPED if name != "stemrepro" else shutil.ignore_patterns("__pycache__"),
            )
        for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
            shutil.copy(ROOT / name, folder / name)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where dvc and stemrepro are
        self.environment = os.environ | {
            "PATH": path,
            "PYTHONPATH": str(folder),
            "DVC_NO_ANALYTICS": "1",
            "PIP_NO_INDEX": "1",
        }
        self.call("git", "init", "-q")
        self.call("git", "add", "-A")
        self.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "start")

    def call(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stale(self) -> set[str]:
        """Stages that DVC would run, but for those that were never asked for."""
        return set(json.loads(self.call("dvc", "status", "--json"))) - self.left

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project"))
    project.call("stemrepro", "plan", "--scale", "smoke")
    project.call("dvc", "repro", *TARGETS)
    project.left = project.stale()
    return project


@pytest.fixture
def restored(project):
    """Gives the project, and afterwards takes back edits of tracked files."""
    yield project
    project.call("git", "checkout", "--", "stemrepro", "recipes", "analysis")
    project.call("stemrepro", "plan", "--scale", "smoke", "--quiet")


def test_every_recipe_gives_figures_and_verdicts(project, book):
    for name in RECIPES:
        recipe, folder = book.recipes[name], project.folder / "results" / "smoke" / name
        assert {"figure.pdf", "figure.svg", "figure.png", "data.csv", "verdicts.json", "provenance.json"} <= {
            p.name for p in folder.iterdir()
        }
        rows = json.loads((folder / "verdicts.json").read_text())
        assert [row["claim"] for row in rows] == list(recipe.claims)
        assert {row["verdict"] for row in rows} <= set(VERDICTS)
        keys = {"claim", "metric", "arms", "paper", "ours", "ci_low", "ci_high", "seeds", "scale", "verdict", "reason"}
        assert all(keys <= row.keys() for row in rows)
    assert (project.folder / "results" / "smoke" / "data_card.md").exists()


def test_one_seed_is_never_enough(project):
    rows = json.loads((project.folder / "results/smoke/validation_loss/verdicts.json").read_text())
    assert {row["verdict"] for row in rows} <= {"inconclusive", "not testable at this scale"}


def test_every_run_was_tracked_while_it_trained_and_scores_come_with_a_sync(project):
    """Training keeps MLflow up to date by itself; `stemrepro track` adds what came after."""

    def runs():
        database = sqlite3.connect(project.folder / "mlflow.db")
        names = {name for (name,) in database.execute("select name from runs")}
        metrics = {key for (key,) in database.execute("select distinct key from metrics")}
        return names, metrics

    arms = ("dense", "stem-third", "stem-half", "stem-full", "token-only")
    names, metrics = runs()
    assert names == {*arms, *(f"{arm} seed 0" for arm in arms)}
    assert "training/loss" in metrics
    assert "final/prose_loss" not in metrics
    assert "5 runs of scale 'smoke' are in sqlite:///mlflow.db" in project.call(
        "stemrepro", "track", "--scale", "smoke"
    )
    names, metrics = runs()
    assert len(names) == 10
    assert {"final/prose_loss", "tasks/openbookqa"} <= metrics


def test_the_readmes_snippet_runs(project):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    code = (
        code.replace("laptop", "smoke").replace("data/text", "data/sample") + "\nprint('requests cut:', lm.truncated)"
    )
    assert "requests cut: 16" in project.call(sys.executable, "-c", code)  # of the 160 + 160 of OpenBookQA


def test_verify_compares_with_the_committed_verdicts(project):
    shown = project.call("stemrepro", "verify", "--scale", "smoke")
    assert "no committed verdicts for scale 'smoke'" in shown


def test_nothing_is_left_to_do(project, book):
    assert {stage.split("@")[0] for stage in project.left} <= {
        "vocabularies",
        "train",
        "train_points",
        "losses",
        "losses_points",
        "benchmarks",
        "report",
        *book.recipes,
    }
    assert project.left.isdisjoint(TARGETS)
    output = project.call("dvc", "repro", *TARGETS)
    assert "Running stage" not in output
    assert "didn't change" in output or "up to date" in output


def test_redrawing_gives_the_same_bytes(project):
    folder = project.folder / "results" / "smoke" / "validation_loss"
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "provenance.json"}
    project.call("dvc", "repro", "--single-item", "--force", "validation_loss@smoke")
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "provenance.json"} == before


def test_touching_a_plot_runs_one_stage(restored):
    restored.edit("analysis/validation_loss.py", "figsize=(7.4", "figsize=(7.5")
    assert restored.stale() == {"validation_loss@smoke"}


def test_touching_a_threshold_runs_one_analysis(restored):
    restored.edit("recipes/validation_loss.yaml", "smallest_effect: 0.02", "smallest_effect: 0.03")
    assert restored.stale() == {"check@smoke", "validation_loss@smoke"}


def test_touching_a_task_file_scores_the_benchmarks_again(restored):
    restored.edit("stemrepro/evaluation/tasks/archive/openbookqa.yaml", "task: openbookqa", "task: openbookqa ")
    assert {stage.split("@")[0] for stage in restored.stale()} == {"benchmarks"}


def test_touching_one_arm_trains_one_arm(restored):
    restored.edit("recipes/arms.yaml", "stem-half:  {ffn: stem,", "stem-half:  {table_rate_factor: 2.0, ffn: stem,")
    restored.call("stemrepro", "plan", "--scale", "smoke", "--quiet")
    assert {stage for stage in restored.stale() if stage.startswith("train")} == {"train@smoke-stem-half"}


def test_an_unplanned_edit_is_refused(restored):
    restored.edit("recipes/arms.yaml", "stem-half:  {ffn: stem,", "stem-half:  {table_rate_factor: 2.0, ffn: stem,")
    message = restored.call("dvc", "repro", "check@smoke", code=255)
    assert (
        "params.yaml no longer follows from recipes/ (arm.smoke.stem-half.table_rate_factor: 1.0, planned 2.0)"
        in message
    )


def test_another_scale_and_back_runs_nothing(restored):
    text = (restored.folder / "recipes/scales/smoke.yaml").read_text().replace("results/smoke", "results/other")
    other = restored.folder / "recipes" / "scales" / "other.yaml"
    other.write_text(text)
    restored.call("dvc", "repro", "check@smoke")
    restored.call("stemrepro", "plan", "--scale", "other", "--quiet")
    restored.call("dvc", "repro", "train@other-dense")
    restored.call("stemrepro", "plan", "--scale", "smoke", "--quiet")
    assert restored.stale() == set()
    other.unlink()
    restored.call("dvc", "repro", "check@smoke")


def test_metrics_plots_dag_and_an_experiment(project):
    assert "stem-full" in project.call("dvc", "metrics", "show")
    project.call("dvc", "plots", "show")
    assert (project.folder / "dvc_plots" / "index.html").exists()
    assert "train@smoke-dense" in project.call("dvc", "dag")
    project.call("git", "add", "-A")
    project.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "results")
    output = project.call("dvc", "exp", "run", "-S", "arm.smoke.dense.learning_rate=0.02", "train@smoke-dense")
    assert (
        "experiment: params.yaml differs from recipes/ in arm.smoke.dense.learning_rate: 0.02, planned 0.01" in output
    )
    config = (project.folder / "runs/smoke/dense/seed0/config.yaml").read_text()
    assert "learning_rate: 0.02" in config
