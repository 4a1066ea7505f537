"""Two small recipes end to end, in a fresh repository, by the commands that users type: in one process, and by DVC.

Then what runs again after an edit, in trained runs and scored arms. tests/test_analyses.py draws every analysis.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import chdir
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from stemrepro.cli.skeletons import new_arm, new_recipe
from stemrepro.common.files import sha256
from stemrepro.config.address import Address
from stemrepro.measures import store
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

RECORDS = ("arms", "mixes", "paper", "variants", "shapes")
PAIR = """\
title: A pair
paper_item: none
place: 1
measure: comparison
origin: control
scales: [tiny]
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
    metric: {loss: prose}
    arms: [dense, stem-half]
    smallest_effect: 0.02
"""
ANALYSIS = '''\
"""Losses of a pair."""

from stemrepro.report import forest


def collect(scores):
    """Return what is drawn."""
    return forest.collect(scores)


def draw(data, scores):
    """Draw it."""
    return forest.draw(data, scores)
'''
SMALLER = {
    "scoreboard: results/smoke": "scoreboard: results",
    "vocab: 512,": "vocab: 512, layers: 3,",
    "tokens: 8192, batch: 16, micro_batch: 16,": "tokens: 1024, batch: 4, micro_batch: 4,",
    "eval_tokens: 1024, eval_batch: 16,": "eval_tokens: 256, eval_batch: 4,",
    "tokens: 2048,": "tokens: 512,",
    "items: 10": "items: 3",
}
"""What scale `tiny` has for smoke's: starts of processes are what takes long here."""
REPRODUCE = "stemrepro", "reproduce", "--scale", "tiny"
PARAMS = "scale: tiny\nmix: sample\nrecipes: [pair]\n"


def pipeline() -> str:
    """dvc.yaml as it is, for one scale and recipe: without the other recipes, the blend's card, the page and plots."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    del stages["report"]
    kept = {f"recipes/{name}.yaml" for name in (*RECORDS, "scales/${scale}", "${item}")}
    for stage in stages.values():
        about = stage.get("do", stage)
        about["deps"] = [path for path in about["deps"] if not path.startswith("recipes/") or path in kept]
        about["outs"] = [out for out in about["outs"] if "data_card_mid" not in str(out)]
    stages["train"]["deps"].append("recipes/pair.yaml")
    return yaml.safe_dump({"stages": stages}, sort_keys=False)


def ran(output: str) -> set[str]:
    """The stages that ran, by what DVC printed."""
    return set(re.findall(r"Running stage '([^']+)'", output))


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
        shutil.copy(ROOT / "recipes/scales/smoke.yaml", folder / "recipes/scales/tiny.yaml")
        for whole, small in SMALLER.items():
            self.edit("recipes/scales/tiny.yaml", whole, small)
        (folder / "recipes/pair.yaml").write_text(PAIR)
        (folder / "recipes/questions.yaml").write_text("{}\n")
        (folder / "analysis/pair.py").write_text(ANALYSIS)
        (folder / "params.yaml").write_text(PARAMS)
        (folder / "dvc.yaml").write_text(pipeline())
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where dvc and stemrepro are
        settings = {"PATH": path, "PYTHONPATH": str(folder), "DVC_NO_ANALYTICS": "1", "PIP_NO_INDEX": "1"}
        self.environment = os.environ | settings
        self.call("git", "init", "-q")
        self.commit("start")

    def commit(self, message: str) -> None:
        self.call("git", "add", "-A")
        self.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", message)

    def call(self, *command: str, code: int = 0) -> str:
        where = {"cwd": self.folder, "env": self.environment, "timeout": 600}
        done = subprocess.run(command, capture_output=True, text=True, **where)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))


@pytest.fixture(scope="module")
def project(tmp_path_factory, empty_database):
    project = Project(tmp_path_factory.mktemp("project"))
    shutil.copy(empty_database, project.folder / "mlflow.db")
    project.said = project.call(*REPRODUCE, "--recipe", "pair")
    return project


@pytest.fixture
def restored(project):
    """Gives the project, and afterwards takes back edits of tracked files."""
    yield project
    project.call("git", "checkout", "--", "stemrepro", "recipes", "analysis")
    project.call("git", "clean", "-fdq", "stemrepro", "recipes", "analysis", "my")


def test_a_recipe_gives_figures_and_a_verdict(project):
    folder = project.folder / "results/tiny/pair"
    files = {"figure.svg", "data.csv", "verdicts.json", "provenance.json"}
    assert files <= {path.name for path in folder.iterdir()}
    (row,) = json.loads((folder / "verdicts.json").read_text())
    assert row["verdict"] == "undecided"
    keys = {"claim", "metric", "arms", "paper", "ours", "ci_low", "ci_high", "seeds", "scale", "verdict", "reason"}
    assert keys <= row.keys()
    assert (folder.parent / "data_card.md").exists()


def test_every_run_is_tracked_with_its_scores(project):
    database = sqlite3.connect(project.folder / "mlflow.db")
    names = {name for (name,) in database.execute("select name from runs")}
    metrics = {key for (key,) in database.execute("select distinct key from metrics")}
    arms = ("dense", "stem-half", "dense@official-start", "stem-half@official-start")
    assert {*arms} <= names
    assert len(names) == 8
    assert {"final/prose_loss", "tasks/openbookqa"} <= metrics


def test_the_readmes_snippet_runs(project, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto.md").read_text(), flags=re.DOTALL)
    (code,) = (code for code in blocks if "simple_evaluate" in code)
    code = re.sub(r"stem-\w+", "stem-half", code.replace("laptop", "tiny").replace("data/text-8", "data/sample"))
    monkeypatch.chdir(project.folder)
    names = {}
    exec(code, names)
    assert names["lm"].truncated == 16  # requests that were cut, of the 160 + 160 of OpenBookQA


def made(project, pattern):
    """When files were written, by path: what was trained or scored anew has another time."""
    return {path: path.stat().st_mtime_ns for path in project.folder.glob(pattern)}


RUNS = "runs/tiny/*/*/seed*/weights.safetensors"


def keys_of_scores(project):
    """Hashes of what scores follow from, by kind and arm."""
    protocol = store.protocol(project.folder / "scores/tiny")
    return {f"{kind} of {Address(variant, arm)}": key for (kind, variant, arm), (key, _) in protocol.items()}


def anew(project, *command):
    """The runs that were trained and the scores that were written by a command, and what it printed."""
    before, scored = made(project, RUNS), keys_of_scores(project)
    output = project.call(*command)
    trained = [path for path, time in made(project, RUNS).items() if before.get(path) != time]
    changed = {name for name, key in keys_of_scores(project).items() if scored.get(name) != key}
    return {path.parent.relative_to(project.folder).as_posix() for path in trained}, changed, output


def test_there_is_nothing_to_do_again(project):
    before = made(project, "results/tiny/pair/*")
    trained, scored, said = anew(project, *REPRODUCE, "--recipe", "pair")
    assert trained == scored == set()
    assert {"text: nothing to do", "train: 0 of 4 runs", "figures: 0 of 1"} <= set(said.splitlines())
    assert made(project, "results/tiny/pair/*") == before


def test_an_edit_makes_anew_what_follows_from_it_alone(restored):
    restored.edit("recipes/pair.yaml", "smallest_effect: 0.02", "smallest_effect: 0.03")
    trained, scored, said = anew(restored, *REPRODUCE, "--recipe", "pair")
    assert trained == scored == set()
    assert "figures: 1 of 1" in said
    restored.edit("stemrepro/evaluation/tasks/archive/openbookqa.yaml", "task: openbookqa", "task: openbookqa ")
    trained, scored, _ = anew(restored, *REPRODUCE, "--recipe", "pair")
    assert trained == set()
    assert scored == {f"benchmarks of {arm}" for arm in ("dense", "stem-half")}


@pytest.fixture(scope="module")
def stages(project):
    """The same project, whose stages DVC knows."""
    project.call("git", "checkout", "--", "stemrepro", "recipes", "analysis")
    trained, _, output = anew(project, "dvc", "repro")
    assert trained == set()  # a stage starts, and its command finds all runs done
    assert ran(output) == {"fetch", "corpus", "tokenizer", "blocks", "train", "score", "analyse@pair"}
    project.commit("drawn")
    return project


def clone_of(project, folder):
    clone = Project.__new__(Project)
    clone.folder = folder
    project.call("git", "clone", "-q", ".", str(folder))
    clone.environment = project.environment | {"PYTHONPATH": str(folder)}
    return clone


def test_in_a_clone_there_is_nothing_to_do_and_an_edit_draws_one_figure(stages, tmp_path):
    clone = clone_of(stages, tmp_path / "clone")
    assert not (clone.folder / "runs").exists()
    said = clone.call("dvc", "repro", "--allow-missing")
    assert ran(said) == set()
    assert "up to date" in said
    assert clone.call("git", "status", "--porcelain", "--", ":!.dvcsite") == ""
    clone.edit("analysis/pair.py", '"""Draw it."""', '"""Draw it."""\n    data = data.copy()')
    assert ran(clone.call("dvc", "repro", "-s", "analyse")) == {"analyse@pair"}
    assert ran(clone.call("dvc", "repro", "-s", "analyse")) == set()
    changed = clone.call("git", "status", "--porcelain", "--", ":!.dvcsite").split()[1::2]
    assert set(changed) <= {"analysis/pair.py", "dvc.lock", "results/tiny/pair/provenance.json"}


def test_a_killed_dvc_is_mended_by_the_next_start(stages):
    """Where it was is found again by the runs themselves; DVC frees its own lock."""
    shutil.rmtree(stages.folder / "runs/tiny/main/dense")
    command, unread = ["dvc", "repro", "train"], dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    where = {"cwd": stages.folder, "env": stages.environment}
    process = subprocess.Popen(command, start_new_session=True, **where, **unread)
    for _ in range(1200):
        if list(stages.folder.glob("runs/tiny/main/dense/seed0/config.yaml")):
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    trained, _, said = anew(stages, *command)
    assert trained <= {"runs/tiny/main/dense/seed0"}
    assert (stages.folder / "runs/tiny/main/dense/seed0/weights.safetensors").exists()
    assert "ERROR" not in said


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


def test_a_second_clone_pulls_what_it_can_only_read_and_trains_nothing(stages, tmp_path, address_of):
    stages.call("dvc", "repro")
    stages.call("dvc", "remote", "add", "-d", "store", address_of(tmp_path))
    stages.call("dvc", "remote", "add", "--local", "home", str(tmp_path))
    stages.commit("shared")
    stages.call("dvc", "push", "-r", "home")
    second = clone_of(stages, tmp_path / "second")
    second.call("dvc", "pull")
    records = RUNS.replace("weights.safetensors", "provenance.json")
    there, here = (
        {path.relative_to(place.folder): sha256(path) for each in (RUNS, records) for path in place.folder.glob(each)}
        for place in (stages, second)
    )
    assert len(there) == 8
    assert here == there
    trained, scored, output = anew(second, "dvc", "repro", "--allow-missing")
    assert trained == scored == ran(output) == set()


NEW = """from stemrepro.model.ffn.base import ffn
from stemrepro.model.ffn.stem import Stem


@ffn("doubled")
class Doubled(Stem):
    \"\"\"Rows twice as large.\"\"\"

    def rows(self, x, tokens):
        return 2 * super().rows(x, tokens)
"""


def touched(project):
    """Files of the project that were edited or made by hand."""
    folders = "recipes", "stemrepro", "analysis", "my"
    return set(project.call("git", "status", "--porcelain", "--untracked-files=all", "--", *folders).split()[1::2])


def test_an_edited_arm_and_new_ones_are_trained_and_scored_alone(restored):
    """An arm and a network edit two files, a benchmark three, and a comment none.

    After those that ask what is up to date, because its runs and scores stay.
    """
    with chdir(restored.folder):
        new_arm("narrow", "token-only")
        new_recipe("mine", ["dense", "narrow"])
    assert touched(restored) == {"recipes/arms.yaml", "recipes/mine.yaml"}
    half = "{ffn: stem, placement: half,"
    restored.edit("recipes/arms.yaml", half, half.replace("{", "{table_rate_factor: 2.0, "))
    with chdir(restored.folder):
        new_arm("rows", "my/rows.py:Rows")
    restored.edit("recipes/mine.yaml", "narrow]\nseeds", "narrow, rows, doubled]\nseeds")
    assert touched(restored) == {"recipes/arms.yaml", "recipes/mine.yaml", "my/rows.py"}

    (restored.folder / "stemrepro/model/ffn/doubled.py").write_text(NEW)
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

    trained, scored, _ = anew(restored, *REPRODUCE, "--recipe", "pair", "--recipe", "mine")
    others = ("main/stem-half", "official-start/stem-half", "main/narrow", "main/rows", "main/doubled")
    assert trained == {f"runs/tiny/{arm}/seed0" for arm in others}
    of_benchmarks = {f"benchmarks of {arm}" for arm in ("dense", "stem-half")}
    assert scored == of_benchmarks | {f"losses of {Address(*arm.split('/'))}" for arm in others}
    about = store.about(restored.folder / "scores/tiny", "benchmarks", Address("main", "dense"))
    assert "atlas_seat" in about["tasks"]
    results = {path.name for path in (restored.folder / "results/tiny/mine").iterdir()}
    assert {"figure.svg", "verdicts.json"} <= results  # without a file of its own


def test_an_experiment_trains_what_it_sets_and_leaves_nothing_behind(stages):
    record = stages.folder / "runs/tiny/main/dense/seed0/provenance.json"
    stages.call("git", "restore", ".")
    stages.call("dvc", "checkout", "--force", "train")
    before = record.read_bytes()
    experiment = "dvc", "exp", "run", "-S", "recipes/scales/tiny.yaml:learning_rate=0.02", "score"
    trained, scored, _ = anew(stages, *experiment)
    arms = ("dense", "stem-half")
    assert trained == {f"runs/tiny/{variant}/{arm}/seed0" for variant in ("main", "official-start") for arm in arms}
    assert {name.partition(" ")[0] for name in scored} == {"losses", "benchmarks"}
    config = (stages.folder / "runs/tiny/main/dense/seed0/config.yaml").read_text()
    assert "learning_rate: 0.02" in config
    assert record.read_bytes() != before
    stages.call("git", "restore", ".")
    stages.call("dvc", "checkout", "train")
    assert record.read_bytes() == before
