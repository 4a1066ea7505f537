"""A plan of two small recipes end to end at the smoke scale, in a fresh repository, by the commands that users type.

Then what runs again after an edit, in trained runs and scored arms. tests/test_analyses.py draws every analysis.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import chdir
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from stemrepro.cli.skeletons import new_arm, new_recipe
from stemrepro.common.files import sha256
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

RECORDS = ("arms", "mixes", "paper", "variants", "shapes")
PAIR = """\
title: A pair
paper_item: none
place: 1
measure: comparison
origin: control
scales: [smoke]
arms: [dense, stem-half]
scores: [losses, benchmarks]
variants: {official-start: {}}
tasks:
  openbookqa: {label: OpenBookQA, score: acc_norm}
  atlas_capital: {label: capital, score: acc}
groups: {both: [openbookqa, atlas_capital]}
claims:
  half-below-dense:
    sentence: STEM 1/2 ends at a lower validation loss than dense.
    kind: greater
    metric: prose
    arms: [dense, stem-half]
    smallest_effect: 0.02
"""
ANALYSIS = '''\
"""Losses of a pair."""

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.report import forest


def collect(measure) -> pd.DataFrame:
    """Return what is drawn."""
    return forest.collect(measure)


def draw(data: pd.DataFrame, measure) -> Figure:
    """Draw it."""
    return forest.draw(data, measure)
'''
SMALLER = {
    "vocab: 512,": "vocab: 512, layers: 3,",
    "tokens: 8192, batch: 16, micro_batch: 16,": "tokens: 1024, batch: 4, micro_batch: 4,",
    "eval_tokens: 1024, eval_batch: 16,": "eval_tokens: 256, eval_batch: 4,",
    "tokens: 2048,": "tokens: 512,",
    "items: 10": "items: 3",
}
"""What is edited in the scale: starts of processes are what takes long here."""
OF_PLAN = "plan/dvc.yaml:"
PLAN = ("stemrepro", "plan", "--scale", "smoke", "--quiet")


def targets(*names: str) -> tuple[str, ...]:
    """Stages of the plan, which aren't those of dvc.yaml."""
    return tuple(f"{OF_PLAN}{name}@smoke" for name in names)


TARGETS = targets("pair", "metrics")


def ran(output: str) -> set[str]:
    """The plan's stages that ran, by what DVC printed."""
    return set(re.findall(rf"Running stage '{OF_PLAN}([^']+)'", output))


class Project:
    """A copy of the project with these two recipes alone, in a repository of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "stemrepro", folder / "stemrepro")  # with what Python has compiled of it
        shutil.copytree(ROOT / ".dvc", folder / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
        shutil.copytree(ROOT / "recipes/scales", folder / "recipes/scales")
        (folder / "analysis").mkdir()
        for name in (".dvcignore", ".gitignore", *(f"recipes/{name}.yaml" for name in (*RECORDS, "paper_audit"))):
            shutil.copy(ROOT / name, folder / name)
        for whole, small in SMALLER.items():
            self.edit("recipes/scales/smoke.yaml", whole, small)
        (folder / "recipes/pair.yaml").write_text(PAIR)
        (folder / "analysis/pair.py").write_text(ANALYSIS)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where dvc and stemrepro are
        settings = {"PATH": path, "PYTHONPATH": str(folder), "DVC_NO_ANALYTICS": "1", "PIP_NO_INDEX": "1"}
        self.environment = os.environ | settings
        self.call("git", "init", "-q")
        self.commit("start")

    def commit(self, message: str) -> None:
        self.call("git", "add", "-A")
        self.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", message)

    def call(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stale(self) -> set[str]:
        """Stages that DVC would run for TARGETS."""
        return ran(self.call("dvc", "repro", "--dry", *TARGETS))

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))


@pytest.fixture(scope="module")
def project(tmp_path_factory, empty_database):
    project = Project(tmp_path_factory.mktemp("project"))
    shutil.copy(empty_database, project.folder / "mlflow.db")
    project.call(*PLAN)
    project.call("dvc", "repro", *TARGETS)
    project.call("stemrepro", "judge", "--scale", "smoke")
    return project


@pytest.fixture
def restored(project):
    """Gives the project, and afterwards takes back edits of tracked files."""
    yield project
    project.call("git", "checkout", "--", "stemrepro", "recipes", "analysis")
    project.call("git", "clean", "-fdq", "stemrepro", "recipes", "analysis", "my")


def test_a_recipe_gives_figures_and_a_verdict_for_which_one_seed_is_never_enough(project):
    folder = project.folder / "results/smoke/pair"
    files = {"figure.svg", "data.csv", "verdicts.json", "provenance.json"}
    assert files <= {path.name for path in folder.iterdir()}
    (row,) = json.loads((folder / "verdicts.json").read_text())
    assert row["verdict"] == "undecided"
    keys = {"claim", "metric", "arms", "paper", "ours", "ci_low", "ci_high", "seeds", "scale", "verdict", "reason"}
    assert keys <= row.keys()
    assert (folder.parent / "data_card.md").exists()


def test_every_run_was_tracked_while_it_trained_and_scores_come_with_a_sync(project):
    """Training keeps MLflow up to date by itself; `stemrepro track` adds what came after."""

    def tracked():
        database = sqlite3.connect(project.folder / "mlflow.db")
        names = {name for (name,) in database.execute("select name from runs")}
        metrics = {key for (key,) in database.execute("select distinct key from metrics")}
        return names, metrics

    arms = ("dense", "stem-half", "dense@official-start", "stem-half@official-start")
    names, metrics = tracked()
    assert names == {*arms, *(f"{arm} seed 0" for arm in arms)}
    assert "training/loss" in metrics
    assert "final/prose_loss" not in metrics
    shown = project.call("stemrepro", "track", "--scale", "smoke")
    assert "4 arms and 4 runs of scale 'smoke' are in sqlite:///mlflow.db" in shown
    names, metrics = tracked()
    assert len(names) == 8
    assert {"final/prose_loss", "tasks/openbookqa"} <= metrics


def test_the_readmes_snippet_runs(project, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto.md").read_text(), flags=re.DOTALL)
    (code,) = (code for code in blocks if "simple_evaluate" in code)
    code = re.sub(r"stem-\w+", "stem-half", code.replace("laptop", "smoke").replace("data/text-8", "data/sample"))
    monkeypatch.chdir(project.folder)
    names = {}
    exec(code, names)
    assert names["lm"].truncated == 16  # requests that were cut, of the 160 + 160 of OpenBookQA


def test_verify_compares_with_the_committed_verdicts(project):
    shown = project.call("stemrepro", "verify", "--scale", "smoke", code=3)
    assert "no committed verdicts for scale 'smoke'" in shown


def test_redrawing_gives_the_same_bytes_and_nothing_is_left_to_do(project):
    folder = project.folder / "results" / "smoke" / "pair"

    def bytes_of() -> dict:
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != "provenance.json")
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    before = bytes_of()
    assert {"figure.svg", "verdicts.json"} <= before.keys()
    project.call("dvc", "repro", "--single-item", "--force", *targets("pair"))
    assert bytes_of() == before
    output = project.call("dvc", "repro", *TARGETS)
    assert "Running stage" not in output
    assert "didn't change" in output or "up to date" in output


def made(project, pattern):
    """When files were written, by path: what was trained or scored anew has another time."""
    return {path: path.stat().st_mtime_ns for path in project.folder.glob(pattern)}


RUNS, SCORES = "runs/smoke/*/*/seed*/weights.safetensors", "scores/smoke/*/*/*/summary.json"


def anew(project, *asked, command=("dvc", "repro")):
    """The runs that were trained and the scores that were written by a command of DVC, and what it printed."""
    before = {pattern: made(project, pattern) for pattern in (RUNS, SCORES)}
    output = project.call(*command, *(asked or TARGETS))
    changed = [
        {
            path.parent.relative_to(project.folder).as_posix()
            for path, time in made(project, pattern).items()
            if old.get(path) != time
        }
        for pattern, old in before.items()
    ]
    return *changed, output


def test_touching_a_plot_draws_one_figure_and_a_task_file_scores_the_benchmarks_again(restored):
    restored.edit("analysis/pair.py", '"""Draw it."""', '"""Draw it."""\n    data = data.copy()')
    assert restored.stale() == {"pair@smoke"}
    restored.call("git", "checkout", "--", "analysis")
    restored.edit("stemrepro/evaluation/tasks/archive/openbookqa.yaml", "task: openbookqa", "task: openbookqa ")
    stale = restored.stale()
    assert "benchmarks@smoke-sample" in stale
    assert not {"train@smoke", "losses@smoke"} & stale


def test_touching_a_threshold_judges_one_recipe(restored):
    restored.edit("recipes/pair.yaml", "smallest_effect: 0.02", "smallest_effect: 0.03")
    trained, scored, output = anew(restored)
    assert trained == scored == set()
    assert ran(output) == {"check@smoke-sample", "pair@smoke", "metrics@smoke"}


def test_another_scale_and_back_runs_nothing(project):
    text = (project.folder / "recipes/scales/smoke.yaml").read_text().replace("results/smoke", "results/other")
    other = project.folder / "recipes" / "scales" / "other.yaml"
    other.write_text(text)
    project.call("stemrepro", "plan", "--scale", "other", "--quiet", "--recipe", "paper_audit")
    project.call("dvc", "repro", f"{OF_PLAN}check@other-sample")
    other.unlink()
    project.call(*PLAN)
    assert anew(project, *targets("train", "losses"))[:2] == (set(), set())


def test_metrics_are_shown_by_gap_in_120_columns(project):
    shown = project.call("dvc", "metrics", "show").strip().splitlines()
    columns = ["Path", "gap (nats/token)", "kFLOPs/token", "loss (nats/token)", "parameters"]
    assert re.split("  +", shown[0].strip()) == columns
    assert {line.split("/")[-1].split(".json")[0] for line in shown[1:]} >= {"dense", "stem-half"}
    gaps = [float(gap) if (gap := line.split()[1]) != "-" else 0.0 for line in shown[1:]]  # dense has none
    assert gaps == sorted(gaps, reverse=True)
    assert max(map(len, shown)) <= 120


@pytest.fixture
def address_of():
    """address_of(folder) -> an address at which the folder can be read and not written."""
    servers = []

    def serve(folder: Path) -> str:
        handler = partial(SimpleHTTPRequestHandler, directory=folder)
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_second_clone_pulls_what_it_can_only_read_and_trains_nothing(project, tmp_path, address_of):
    project.call("dvc", "remote", "add", "-d", "store", address_of(tmp_path))
    project.call("dvc", "remote", "add", "--local", "home", str(tmp_path))
    project.commit("shared")
    project.call("dvc", "push", "-r", "home")
    second = Project.__new__(Project)
    second.folder = tmp_path / "second"
    project.call("git", "clone", "-q", ".", str(second.folder))
    second.environment = project.environment | {"PYTHONPATH": str(second.folder)}
    second.call("dvc", "pull")
    there, here = (
        {path.relative_to(place.folder): sha256(path) for path in place.folder.glob(RUNS)}
        for place in (project, second)
    )
    assert len(there) == 4
    assert here == there
    trained, scored, output = anew(second, *targets("losses"))
    assert trained == set()
    assert len(scored) == 4
    assert ran(output) == {"blocks@smoke-sample", "losses@smoke"}  # git holds no data card and no scores of this scale


RATE = """\
title: A rate
sampler: grid
space: {arm: [dense], learning_rate: [0.01], seed: [100]}
"""


def test_a_sweep_is_a_stage_that_runs_when_it_is_asked_for(restored):
    """Its trials are kept: an edit of the grid trains the new point alone."""
    file, stage = restored.folder / "recipes/sweeps/rate.yaml", "plan/sweeps/dvc.yaml:sweep@rate"
    file.parent.mkdir()
    file.write_text(RATE)
    restored.call(*PLAN)
    assert "sweep" not in restored.call("dvc", "stage", "list", "--name-only", *TARGETS, "plan/dvc.yaml")
    restored.call("dvc", "repro", stage)
    best = (restored.folder / "results/smoke/sweeps/rate/best.csv").read_text().splitlines()
    assert best[0] == "arm,learning_rate,prose,at_edge"
    assert [line.partition(",")[0] for line in best[1:]] == ["dense"]
    trials = made(restored, "sweeps/smoke/rate/runs/*/weights.safetensors")
    assert len(trials) == 1
    assert "Running stage" not in restored.call("dvc", "repro", stage)
    file.write_text(RATE.replace("0.01", "0.01, 0.02"))
    restored.call("dvc", "repro", stage)
    after = made(restored, "sweeps/smoke/rate/runs/*/weights.safetensors")
    assert len(after) == 2
    assert after | trials == after
    file.unlink()
    file.parent.rmdir()
    restored.call(*PLAN)


NEW = """from stemrepro.model.ffn.stem import Stem


class Doubled(Stem):
    \"\"\"Rows twice as large.\"\"\"

    def rows(self, tokens):
        return 2 * super().rows(tokens)
"""


def touched(project):
    """Files of the project that were edited or made by hand."""
    folders = "recipes", "stemrepro", "analysis", "my"
    return set(project.call("git", "status", "--porcelain", "--untracked-files=all", "--", *folders).split()[1::2])


def test_an_edited_arm_and_new_ones_are_trained_and_scored_alone(restored):
    """An arm edits two files, a network three, a benchmark three, and a comment none. All in an experiment.

    At the end of this file, because its runs and scores stay.
    """
    with chdir(restored.folder):
        new_arm("narrow", "token-only")
        new_recipe("mine", ["dense", "narrow"])
    assert touched(restored) == {"recipes/arms.yaml", "recipes/mine.yaml"}
    half = "{ffn: stem, placement: half,"
    restored.edit("recipes/arms.yaml", half, half.replace("{", "{table_rate_factor: 2.0, "))
    refused = restored.call("dvc", "repro", f"{OF_PLAN}check@smoke-sample", code=255)
    assert "plan/params.yaml no longer follows from recipes/ (" in refused
    assert "run.smoke.main.stem-half.training.table_rate_factor: 1.0, planned 2.0" in refused
    assert "run 'stemrepro plan --scale smoke'" in refused

    with chdir(restored.folder):
        new_arm("rows", "my/rows.py:Rows")
    restored.edit("recipes/mine.yaml", "narrow]\nseeds", "narrow, rows, doubled]\nseeds")
    assert touched(restored) == {"recipes/arms.yaml", "recipes/mine.yaml", "my/rows.py"}

    (restored.folder / "stemrepro/model/ffn/doubled.py").write_text(NEW)
    entry = '    "doubled": FFNSpec(lambda c: _used(2 * _df(c), c.ffn_width)),\n'
    restored.edit("stemrepro/model/specs.py", '    "stem-shuffled":', entry + '    "stem-shuffled":')
    restored.edit("recipes/arms.yaml", "dense:\n", "doubled: {ffn: doubled, placement: full}\ndense:\n")
    restored.edit("stemrepro/model/ffn/stem.py", "class Stem(FFN):", "# What the paper is about.\nclass Stem(FFN):")
    restored.edit("stemrepro/training/train.py", "def train(", "# Here it begins.\ndef train(")

    before = touched(restored)
    restored.edit("recipes/pair.yaml", "  atlas_capital:", "  atlas_seat: {label: seat, score: acc}\n  atlas_capital:")
    seat = '    "seat": (r"The capital of (.+) is (.+)\\.", "The seat of {} is"),\n'
    restored.edit("stemrepro/data/items.py", '    "currency": (', seat + '    "currency": (')
    folder = restored.folder / "stemrepro/evaluation/tasks/text"
    (folder / "atlas_seat.yaml").write_text((folder / "atlas_capital.yaml").read_text().replace("capital", "seat"))
    assert len(touched(restored) - before) == 3

    restored.call(*PLAN)
    restored.commit("edited")
    key = "run.smoke.main.dense.training.learning_rate"
    experiment = "dvc", "exp", "run", "-S", f"plan/params.yaml:{key}=0.02"
    asked = *targets("mine"), f"{OF_PLAN}benchmarks@smoke-sample"
    trained, scored, output = anew(restored, *asked, command=experiment)
    assert f"experiment: plan/params.yaml differs from recipes/ in {key}: 0.02, planned 0.01" in output
    others = ("main/stem-half", "official-start/stem-half", "main/dense", "main/narrow", "main/rows", "main/doubled")
    assert trained == {f"runs/smoke/{arm}/seed0" for arm in others}
    of_benchmarks = {f"scores/smoke/benchmarks/main/{arm}" for arm in ("dense", "stem-half")}
    assert scored == of_benchmarks | {f"scores/smoke/losses/{arm}" for arm in others}
    assert "atlas_seat" in (restored.folder / "scores/smoke/benchmarks/main/dense/summary.json").read_text()
    assert "mine@smoke" in ran(output)
    assert "pair@smoke" in restored.stale()
    results = {path.name for path in (restored.folder / "results/smoke/mine").iterdir()}
    assert {"figure.svg", "verdicts.json"} <= results  # without a file of its own
    config = (restored.folder / "runs/smoke/main/dense/seed0/config.yaml").read_text()
    assert "learning_rate: 0.02" in config
