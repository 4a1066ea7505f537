"""Recipes end to end at the smoke scale, in a fresh repository, by the commands that users type; then what runs again after an edit,
counted in trained runs and scored arms. The recipes with four times as many runs are in tests/test_analyses.py."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from stemrepro.pipeline.stages import drawing
from stemrepro.verdicts.rule import VERDICTS
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
    "table_offload",
    "angular_spread",
    "long_context_capacity",
    "contextual_reasoning",
    "paper_audit",
)
OF_PLAN = "plan/dvc.yaml:"


def targets(*names: str) -> tuple[str, ...]:
    """Stages of the plan, which aren't those of dvc.yaml."""
    return tuple(f"{OF_PLAN}{name}@smoke" for name in names)


TARGETS = targets(*RECIPES, "metrics")
UNDRAWN = (*targets("train", "losses", "geometry", "distance", "reasoning"), f"{OF_PLAN}benchmarks@smoke-sample")
"""What is trained and scored for them."""
PLAN = ("stemrepro", "plan", "--scale", "smoke", "--quiet", *(word for name in RECIPES for word in ("--recipe", name)))


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
        for name in (".dvcignore", ".gitignore"):
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
        """Stages of the plan that DVC would run, but for those that were never asked for."""
        there = json.loads(self.call("dvc", "status", "--json"))
        return {name.removeprefix(OF_PLAN) for name in there if name.startswith(OF_PLAN)} - self.left

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("project"))
    project.call(*PLAN)
    project.call("dvc", "repro", *TARGETS)
    project.left = project.stale()
    return project


@pytest.fixture
def restored(project):
    """Gives the project, and afterwards takes back edits of tracked files."""
    yield project
    project.call("git", "checkout", "--", "stemrepro", "recipes", "analysis")
    project.call("git", "clean", "-fdq", "stemrepro", "recipes", "analysis", "my")
    project.call(*PLAN)


def test_a_figure_depends_on_its_scale_and_that_ones_base(catalog):
    """Unless one stage draws for a scale and for its base: DVC refuses a dependency that stands twice."""

    def files(catalog, recipe):
        return [path for path in drawing(catalog)[recipe]["deps"] if path.startswith("recipes/scales")]

    assert files(catalog, "validation_loss") == ["recipes/scales/${item.scale}.yaml"]
    assert files(catalog, "knowledge_capacity") == ["recipes/scales/${item.scale}.yaml", "recipes/scales/laptop.yaml"]
    both = catalog.recipes["knowledge_capacity"].model_copy(update={"scales": ("laptop", "capacity")})
    catalog = catalog.model_copy(update={"recipes": {"knowledge_capacity": both}})
    assert files(catalog, "knowledge_capacity") == ["recipes/scales"]


def test_every_recipe_gives_figures_and_verdicts(project, catalog):
    for name in RECIPES:
        recipe, folder = catalog.recipes[name], project.folder / "results" / "smoke" / name
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

    both = ("dense", "stem-third", "stem-half", "stem-full", "token-only", "stem-frozen")
    arms = (*both, "stem-shuffled", *(f"{arm}@official-start" for arm in both))
    names, metrics = runs()
    assert names == {*arms, *(f"{arm} seed 0" for arm in arms)}
    assert "training/loss" in metrics
    assert "final/prose_loss" not in metrics
    assert "13 arms and 13 runs of scale 'smoke' are in sqlite:///mlflow.db" in project.call(
        "stemrepro", "track", "--scale", "smoke"
    )
    names, metrics = runs()
    assert len(names) == 26
    assert {"final/prose_loss", "tasks/openbookqa"} <= metrics


def test_the_readmes_snippet_runs(project):
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto.md").read_text(), flags=re.DOTALL)
    (code,) = (code for code in found if "simple_evaluate" in code)
    code = (
        code.replace("laptop", "smoke").replace("data/text-8", "data/sample") + "\nprint('requests cut:', lm.truncated)"
    )
    assert "requests cut: 16" in project.call(sys.executable, "-c", code)  # of the 160 + 160 of OpenBookQA


def test_verify_compares_with_the_committed_verdicts(project):
    shown = project.call("stemrepro", "verify", "--scale", "smoke", code=3)
    assert "no committed verdicts for scale 'smoke'" in shown


def test_nothing_is_left_to_do(project, catalog):
    assert {stage.split("@")[0] for stage in project.left} <= {*catalog.recipes, "report"}
    assert project.left.isdisjoint(name.removeprefix(OF_PLAN) for name in TARGETS)
    output = project.call("dvc", "repro", *TARGETS)
    assert "Running stage" not in output
    assert "didn't change" in output or "up to date" in output


def test_redrawing_gives_the_same_bytes(project):
    folder = project.folder / "results" / "smoke" / "validation_loss"

    def bytes_of() -> dict:
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != "provenance.json")
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    before = bytes_of()
    assert {"panels/a.svg", "panels/d.svg"} <= before.keys()
    project.call("dvc", "repro", "--single-item", "--force", *targets("validation_loss"))
    assert bytes_of() == before


def made(project, pattern):
    """When files were written, by path: what was trained or scored anew has another time."""
    return {path: path.stat().st_mtime_ns for path in project.folder.glob(pattern)}


RUNS, SCORES = "runs/smoke/*/*/seed*/weights.safetensors", "scores/smoke/*/*/*/summary.json"


def anew(project, *targets):
    """The runs that were trained and the scores that were written by a `dvc repro`, and the stages that ran."""
    before = {pattern: made(project, pattern) for pattern in (RUNS, SCORES)}
    output = project.call("dvc", "repro", *(targets or TARGETS))
    changed = [
        {
            path.parent.relative_to(project.folder).as_posix()
            for path, time in made(project, pattern).items()
            if old.get(path) != time
        }
        for pattern, old in before.items()
    ]
    return *changed, set(re.findall(rf"Running stage '{OF_PLAN}([^']+)'", output))


def test_touching_a_plot_draws_one_figure(restored):
    restored.edit("analysis/validation_loss.py", '"Loss against tokens"', '"Loss over tokens"')
    assert anew(restored) == (set(), set(), {"validation_loss@smoke"})


def test_touching_a_threshold_judges_one_recipe(restored):
    restored.edit("recipes/validation_loss.yaml", "smallest_effect: 0.02", "smallest_effect: 0.03")
    assert anew(restored) == (set(), set(), {"check@smoke-sample", "validation_loss@smoke", "metrics@smoke"})


def test_touching_a_task_file_scores_the_benchmarks_again(restored):
    restored.edit("stemrepro/evaluation/tasks/archive/openbookqa.yaml", "task: openbookqa", "task: openbookqa ")
    assert "benchmarks@smoke-sample" in restored.stale()
    assert not {"train@smoke", "losses@smoke", "geometry@smoke"} & restored.stale()


def test_editing_one_arm_trains_and_scores_one_arm(restored):
    restored.edit(
        "recipes/arms.yaml", "{ffn: stem, placement: half,", "{table_rate_factor: 2.0, ffn: stem, placement: half,"
    )
    restored.call(*PLAN)
    both = targets("validation_loss", "benchmark_scores")
    trained, scored, stages = anew(restored, *both)
    assert trained == {f"runs/smoke/{variant}/stem-half/seed0" for variant in ("main", "official-start")}
    of_the_scale = {f"scores/smoke/{part}/main/stem-half" for part in ("losses", "benchmarks")}
    assert scored == of_the_scale | {"scores/smoke/losses/official-start/stem-half"}
    assert "validation_loss@smoke" in stages
    restored.call("git", "checkout", "--", "recipes")
    restored.call(*PLAN)
    assert anew(restored, *both)[0] == trained


def test_a_comment_in_a_network_or_in_training_trains_nothing(restored):
    restored.edit("stemrepro/model/ffn/stem.py", "class Stem(FFN):", "# What the paper is about.\nclass Stem(FFN):")
    restored.edit("stemrepro/training/train.py", "def train(", "# Here it begins.\ndef train(")
    assert anew(restored, *UNDRAWN)[:2] == (set(), set())


NEW = """from stemrepro.model.ffn.stem import Stem


class Doubled(Stem):
    \"\"\"Rows twice as large.\"\"\"

    def rows(self, tokens):
        return 2 * super().rows(tokens)
"""


def test_a_new_network_in_the_package_trains_itself_alone(restored):
    """Three files: the class, its entry, an arm; and the recipe that wants it."""
    (restored.folder / "stemrepro/model/ffn/doubled.py").write_text(NEW)
    restored.edit(
        "stemrepro/model/specs.py",
        '    "stem-shuffled":',
        '    "doubled": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width)),\n    "stem-shuffled":',
    )
    restored.edit("recipes/arms.yaml", "dense:\n", "doubled: {ffn: doubled, placement: full}\ndense:\n")
    restored.edit("recipes/validation_loss.yaml", "stem-frozen, stem-shuffled]", "stem-frozen, stem-shuffled, doubled]")
    restored.call(*PLAN)
    trained, scored, _ = anew(restored, *targets("validation_loss"))
    assert trained == {"runs/smoke/main/doubled/seed0"}
    assert scored == {"scores/smoke/losses/main/doubled"}


def touched(project):
    """Files of the project that were edited or made by hand."""
    folders = "recipes", "stemrepro", "analysis", "my"
    return set(project.call("git", "status", "--porcelain", "--untracked-files=all", "--", *folders).split()[1::2])


def test_an_arm_touches_two_files_a_network_three_and_a_recipe_one(restored):
    """A recipe has a figure without a file of its own."""
    restored.call("stemrepro", "new", "arm", "narrow", "--ffn", "token-only")
    restored.call("stemrepro", "new", "recipe", "mine", "dense", "narrow")
    assert touched(restored) == {"recipes/arms.yaml", "recipes/mine.yaml"}
    restored.call("stemrepro", "new", "arm", "doubled", "--ffn", "my/rows.py:Rows")
    restored.edit("recipes/mine.yaml", "narrow]\nseeds", "narrow, doubled]\nseeds")
    assert touched(restored) == {"recipes/arms.yaml", "recipes/mine.yaml", "my/rows.py"}
    restored.call(*PLAN, "--recipe", "mine")
    trained, scored, _ = anew(restored, *targets("mine"))
    assert trained == {"runs/smoke/main/doubled/seed0", "runs/smoke/main/narrow/seed0"}
    assert scored == {"scores/smoke/losses/main/doubled", "scores/smoke/losses/main/narrow"}
    assert {"figure.svg", "verdicts.json"} <= {path.name for path in (restored.folder / "results/smoke/mine").iterdir()}
    (restored.folder / "my/factor.py").write_text("FACTOR = 1.0\n")
    restored.edit("my/rows.py", "from torch import Tensor", "from my.factor import FACTOR\nfrom torch import Tensor")
    restored.edit("my/rows.py", "self.rows(tokens))", "FACTOR * self.rows(tokens))")
    for text in ("FACTOR = 1.0\n", "FACTOR = 2.0\n"):  # a file that the network imports counts as it does
        (restored.folder / "my/factor.py").write_text(text)
        restored.call(*PLAN, "--recipe", "mine")
        trained, scored, _ = anew(restored, *targets("mine"))
        assert (trained, scored) == ({"runs/smoke/main/doubled/seed0"}, {"scores/smoke/losses/main/doubled"})


def test_an_unplanned_edit_is_refused(restored):
    restored.edit(
        "recipes/arms.yaml", "{ffn: stem, placement: half,", "{table_rate_factor: 2.0, ffn: stem, placement: half,"
    )
    message = restored.call("dvc", "repro", f"{OF_PLAN}check@smoke-sample", code=255)
    keys = "; ".join(
        f"run.smoke.{variant}.stem-half.training.table_rate_factor: 1.0, planned 2.0"
        for variant in ("main", "official-start")
    )
    assert f"plan/params.yaml no longer follows from recipes/ ({keys}); run 'stemrepro plan --scale smoke'" in message


def test_another_scale_and_back_runs_nothing(restored):
    text = (restored.folder / "recipes/scales/smoke.yaml").read_text().replace("results/smoke", "results/other")
    other = restored.folder / "recipes" / "scales" / "other.yaml"
    other.write_text(text)
    restored.call("stemrepro", "plan", "--scale", "other", "--quiet", "--recipe", "cost_model")
    restored.call("dvc", "repro", f"{OF_PLAN}cost_model@other")
    other.unlink()
    restored.call(*PLAN)
    assert anew(restored, *UNDRAWN)[:2] == (set(), set())


def test_a_benchmark_touches_three_files(restored):
    """Late in this file, because its scores stay."""
    restored.edit(
        "stemrepro/data/items.py",
        '    "currency": (',
        '    "seat": (r"The capital of (.+) is (.+)\\.", "The seat of {} is"),\n    "currency": (',
    )
    restored.edit(
        "recipes/benchmark_scores.yaml",
        "  atlas_currency:",
        "  atlas_seat: {label: seat, score: acc}\n  atlas_currency:",
    )
    folder = restored.folder / "stemrepro/evaluation/tasks/text"
    (folder / "atlas_seat.yaml").write_text((folder / "atlas_capital.yaml").read_text().replace("capital", "seat"))
    assert len(touched(restored)) == 3
    restored.call(*PLAN)
    trained, scored, _ = anew(restored, *targets("benchmark_scores"))
    assert not trained
    assert {path.rpartition("/")[2] for path in scored} == {
        "dense",
        "stem-third",
        "stem-half",
        "stem-full",
        "token-only",
    }
    assert "atlas_seat" in (restored.folder / "results/smoke/benchmark_scores/data.csv").read_text()


def test_metrics_plots_dag_and_an_experiment(project):
    shown = project.call("dvc", "metrics", "show").strip().splitlines()
    assert shown[0].split() == ["Path", "gap", "kflops", "params", "prose"]
    assert {line.split("/")[-1].split(".json")[0] for line in shown[1:]} >= {"dense", "stem-full", "token-only"}
    assert max(map(len, shown)) <= 80
    project.call("dvc", "plots", "show")
    assert (project.folder / "dvc_plots" / "index.html").exists()
    assert "train@smoke" in project.call("dvc", "dag")
    project.call("git", "add", "-A")
    project.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "results")
    key = "run.smoke.main.dense.training.learning_rate"
    output = project.call("dvc", "exp", "run", "-S", f"plan/params.yaml:{key}=0.02", *targets("train"))
    assert f"experiment: plan/params.yaml differs from recipes/ in {key}: 0.02, planned 0.01" in output
    config = (project.folder / "runs/smoke/main/dense/seed0/config.yaml").read_text()
    assert "learning_rate: 0.02" in config
