"""MLflow against the run folders: one run each, whatever happened in between."""

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType
from sqlalchemy import event
from sqlalchemy.engine import Engine

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.sources import prose as prose_of
from stemrepro.evaluation import benchmarks, losses
from stemrepro.pipeline.score import write_scores
from stemrepro.tracking.server import tracking_uri
from stemrepro.tracking.sync import Tracker
from stemrepro.training.train import train
from tests.conftest import ROOT, quiet


@pytest.fixture(scope="module")
def trained(tmp_path_factory, runs_in):
    """Two finished runs of STEM 1/3 and three of dense, in main/; tests copy them."""
    folder = tmp_path_factory.mktemp("trained")
    for arm, seeds in {"stem-third": 2, "dense": 3}.items():
        for seed in range(seeds):
            train(runs_in(folder)(arm, seed), quiet)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch, empty_database, trained):
    """Two finished runs of one arm below runs/tiny, and a database."""
    monkeypatch.chdir(tmp_path)
    database(tmp_path / "mlflow.db", empty_database, monkeypatch)
    for place in ("main", "runs/tiny/main"):
        shutil.copytree(trained / "main/stem-third", tmp_path / place / "stem-third")
    return tmp_path


def database(path, empty, monkeypatch):
    """Make a fresh database. Each has another name: MLflow keeps the connection of a name for as long as it lives."""
    shutil.copy(empty, path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")


@pytest.fixture
def score_arm(tiny):
    """score_arm(runs) writes the losses of an arm and returns them: prose by seed, in nats per token."""

    def score(runs):
        given, folder = (
            {"asked": tiny.evaluation, "wanted": ["losses"]},
            Path("scores/tiny/losses/main", runs[0].address.arm),
        )
        write_scores("losses", runs, [losses.score(run, quiet, **given) for run in runs], given, folder, "key")
        table = pd.read_csv(folder / "losses.csv", dtype={"bucket": str})
        prose = table[(table.by == "pair") & table.source.isin(prose_of(tuple(table.source.unique())))]
        sums = prose.groupby(["seed", "source"])[["nats", "tokens"]].sum()
        return (sums.nats / sums.tokens).groupby("seed").mean()

    return score


@pytest.fixture
def made_scores(project, trained, score_arm, make_run):
    """Losses of dense (three seeds) and STEM 1/3 (two); the gap over the seeds that both have."""
    dense, stem = [make_run("dense", seed) for seed in (0, 1, 2)], [make_run("stem-third", seed) for seed in (0, 1)]
    shutil.copytree(trained / "main/dense", project / "main/dense")
    return float((score_arm(dense) - score_arm(stem)).mean())  # pandas leaves out the seed that one lacks


def tracker(catalog):
    return Tracker("tiny", catalog, Path("runs"), Path("scores"))


def runs_of(title="stemrepro tiny", which=ViewType.ACTIVE_ONLY):
    """The MLflow runs of an experiment."""
    client = MlflowClient(tracking_uri())
    return client.search_runs([client.get_experiment_by_name(title).experiment_id], "", which)


def by_name():
    return {run.info.run_name: run for run in runs_of()}


def content():
    """All that MLflow holds, by run key, without ids and times that it makes up."""
    client, found = MlflowClient(tracking_uri()), {}
    for run in runs_of():
        history = {
            key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
            for key in run.data.metrics
        }
        tags = {key: value for key, value in run.data.tags.items() if key not in ("mlflow.parentRunId", "mlflow.user")}
        found[run.data.tags["run_key"]] = (run.info.run_name, run.info.status, run.data.params, history, tags)
    return found


def statuses():
    return {run.info.run_name: run.info.status for run in runs_of()}


def copy_as_dense():
    """Copies the arm's run folders as those of dense."""
    shutil.copytree("runs/tiny/main/stem-third", "runs/tiny/main/dense")
    for seed in (0, 1):
        config = Path(f"runs/tiny/main/dense/seed{seed}/config.yaml")
        config.write_text(config.read_text().replace("arm: stem-third", "arm: dense"))


@pytest.mark.slow
def test_runs_at_points_are_in_another_experiment(project, catalog):
    shutil.copytree("runs/tiny/main/stem-third", "runs/tiny/rate-4/stem-third")
    for seed in (0, 1):
        config = Path(f"runs/tiny/rate-4/stem-third/seed{seed}/config.yaml")
        config.write_text(config.read_text().replace("variant: main", "variant: rate-4"))
    assert tracker(catalog).sync() == (2, 4)
    variants = {run.info.run_name: run for run in runs_of("stemrepro tiny, variants")}
    assert set(variants) == {"stem-third@rate-4", "stem-third@rate-4 seed 0", "stem-third@rate-4 seed 1"}
    tags = variants["stem-third@rate-4 seed 1"].data.tags
    assert (tags["recipes"], tags["variant"]) == ("training_stability", "rate-4")
    assert set(by_name()) == {"stem-third", "stem-third seed 0", "stem-third seed 1"}


def test_a_run_has_its_parameters_curves_and_tags(project, catalog):
    assert tracker(catalog).sync() == (1, 2)
    runs = by_name()
    assert set(runs) == {"stem-third", "stem-third seed 0", "stem-third seed 1"}
    run, folder = runs["stem-third seed 1"], Path("runs/tiny/main/stem-third/seed1")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    marks = [row for row in rows if "validation" in row]
    assert len(marks) == 3
    client = MlflowClient(tracking_uri())
    for metric, values in {"training/loss": [row["loss"] for row in marks],
                           "loss_curve/bible": [row["validation"]["bible"] for row in marks]}.items():  # fmt: skip
        history = client.get_metric_history(run.info.run_id, metric)
        assert [(m.step, m.value) for m in history] == list(zip([row["step"] for row in marks], values, strict=True))
    assert (run.data.params["model.replaced_layers"], run.data.params["seed"]) == ("[1]", "1")
    assert run.data.params.items() > runs["stem-third"].data.params.items()
    assert run.info.status == runs["stem-third"].info.status == "FINISHED"
    wanted = [name for name, recipe in catalog.recipes.items() if Address(MAIN, "stem-third") in recipe.wanted()]
    expected = {
        "scale": "tiny", "arm": "stem-third", "seed": "1", "variant": "main", "recipes": ", ".join(wanted),
        "commit": json.loads((folder / "provenance.json").read_text())["commit"],
        "mlflow.parentRunId": runs["stem-third"].info.run_id,
    }  # fmt: skip
    assert expected.items() <= run.data.tags.items()


def test_again_changes_nothing_and_a_deleted_database_is_rebuilt(project, catalog, empty_database, monkeypatch):
    tracker(catalog).sync()
    before = content()
    tracker(catalog).sync()
    assert content() == before
    database(project / "rebuilt.db", empty_database, monkeypatch)
    tracker(catalog).sync()
    assert content() == before


def test_a_run_that_was_deleted_in_mlflow_comes_back(project, catalog):
    tracker(catalog).sync()
    before = content()
    MlflowClient(tracking_uri()).delete_run(by_name()["stem-third seed 1"].info.run_id)
    tracker(catalog).sync()
    assert content() == before


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_killed_sync_goes_on(project, catalog, empty_database, monkeypatch, calls):
    """It ends after so many changes of the database."""
    tracker(catalog).sync()
    before = content()
    database(project / "killed.db", empty_database, monkeypatch)
    left, log_batch = iter(range(calls)), MlflowClient.log_batch

    def killed(*args, **fields):
        if next(left, None) is None:
            raise KeyboardInterrupt
        log_batch(*args, **fields)

    monkeypatch.setattr(MlflowClient, "log_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        tracker(catalog).sync()
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    tracker(catalog).sync()
    assert content() == before


def test_one_run_through_kill_and_resume(project, catalog, empty_database, monkeypatch):
    """Synced while it trains, after a kill that lost rows, and at its end."""
    folder = Path("runs/tiny/main/stem-third/seed1")
    ends = {name: (folder / name).read_bytes() for name in ("weights.safetensors", "provenance.json")}
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    tracker(catalog).sync()
    complete = content()
    database(project / "live.db", empty_database, monkeypatch)
    for name in ends:
        (folder / name).unlink()
    live = tracker(catalog)
    for count in (5, 10, 5, 12):
        (folder / "metrics.jsonl").write_text("".join(lines[:count]))
        live.sync()
        assert statuses() == {"stem-third": "RUNNING", "stem-third seed 0": "FINISHED", "stem-third seed 1": "RUNNING"}
    for name, data in ends.items():
        (folder / name).write_bytes(data)
    live.sync()
    assert content().keys() == complete.keys()
    for key, (*found, tags) in content().items():
        *wanted, wanted_tags = complete[key]
        assert found == wanted
        assert tags | {"state": ""} == wanted_tags | {"state": ""}  # times of files are in it


def test_scores_of_the_same_settings(project, catalog, sample, asked, score_arm, make_run, empty_database, monkeypatch):
    runs = [make_run("stem-third", seed) for seed in (0, 1)]
    score_arm(runs)
    given = {"asked": asked, "tokenizer_file": sample / "tokenizer.json", "items": sample / "items"}
    scored = [benchmarks.score(run, quiet, **given) for run in runs]
    write_scores("benchmarks", runs, scored, given, Path("scores/tiny/benchmarks/main/stem-third"), "key")
    tracker(catalog).sync()
    found = {name: run.data.metrics for name, run in by_name().items()}
    expected = 100 * scored[1]["openbookqa"]["acc_norm"].mean()
    assert found["stem-third seed 1"]["tasks/openbookqa"] == pytest.approx(expected)
    values, mean = [found[f"stem-third seed {seed}"]["final/prose_loss"] for seed in (0, 1)], found["stem-third"]
    assert mean["final/prose_loss"] == pytest.approx(sum(values) / 2)
    assert mean["variation_over_seeds/prose_loss"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-6)
    summary = Path("scores/tiny/losses/main/stem-third/summary.json")
    summary.write_text(summary.read_text().replace(json.loads(summary.read_text())["params_hash"], "other"))
    database(project / "fresh.db", empty_database, monkeypatch)
    tracker(catalog).sync()
    scored = {
        run.data.tags["run_key"].rpartition("/")[2] for run in runs_of() if "final/prose_loss" in run.data.metrics
    }
    assert scored == {"other"}  # of other settings than the runs have: another arm, none of whose runs are here
    assert len(runs_of()) == 4


def kept(which=ViewType.ACTIVE_ONLY):
    """Names of runs in the scale's experiment, and the hash or sweep that tells them apart."""
    return sorted((run.info.run_name, run.data.tags["run_key"].rpartition("/")[2]) for run in runs_of(which=which))


def change(rate):
    """Gives run folders another learning rate, as training with it does."""
    for path in Path("runs/tiny/main/stem-third").glob("*/config.yaml"):
        path.write_text(re.sub("learning_rate: .*", f"learning_rate: {rate}", path.read_text()))


def test_what_was_retrained_leaves_the_view_and_can_come_back(project, catalog):
    tracker(catalog).sync()
    before = kept()
    first = float(re.search("learning_rate: (.*)", Path("runs/tiny/main/stem-third/seed0/config.yaml").read_text())[1])
    change(0.5)
    tracker(catalog).sync()
    after = kept()
    assert [name for name, _ in after] == [name for name, _ in before]
    assert not {key for _, key in after} & {key for _, key in before}
    assert kept(ViewType.DELETED_ONLY) == before
    assert {run.data.params["training.learning_rate"] for run in runs_of()} == {"0.5"}
    change(first)
    tracker(catalog).sync()
    assert kept() == before
    assert kept(ViewType.DELETED_ONLY) == after


@pytest.mark.slow
def test_a_run_whose_folder_is_gone_leaves_and_so_does_an_arm(project, catalog):
    copy_as_dense()
    sync = tracker(catalog)
    table = pd.DataFrame([{"arm": "dense", "learning_rate": 0.1, "seed": 0, "prose": 4.0, "state": "COMPLETE"}])
    sync.sync_sweep("rates", table)
    sync.sync()
    shutil.rmtree("runs/tiny/main/stem-third/seed1")
    sync.sync()
    assert [name for name, _ in kept(ViewType.DELETED_ONLY)] == ["stem-third seed 1"]
    shutil.rmtree("runs/tiny/main/dense")
    sync.sync("stem-third")
    assert len(kept()) == 7  # a look at one arm says nothing of others
    sync.sync()
    assert [name for name, _ in kept()] == ["dense 0.1 seed 0", "stem-third", "stem-third seed 0", "sweep rates"]


def test_a_setting_that_was_tried_anew_shows_its_new_loss(project, catalog):
    table = pd.DataFrame([{"arm": "dense", "learning_rate": 0.1, "seed": 0, "prose": 4.0, "state": "complete"}])
    for prose in (4.0, 4.5, 4.5):
        tracker(catalog).sync_sweep("rates", table.assign(prose=prose))
    run = by_name()["dense 0.1 seed 0"]
    assert run.data.metrics == {"tune/prose_loss": 4.5}
    history = MlflowClient(tracking_uri()).get_metric_history(run.info.run_id, "tune/prose_loss")
    assert [metric.value for metric in history] == [4.0, 4.5]


def names_of(folder):
    """Active runs that a folder has in a place that it shares."""
    return sorted(run.info.run_name for run in runs_of() if run.data.tags["clone"].startswith(f"{folder} "))


@pytest.mark.slow
def test_two_clones_in_one_place_keep_their_own(project, catalog):
    """Each has runs of the same arm, at another rate; a copy of one is a third."""
    every = ["stem-third", "stem-third seed 0", "stem-third seed 1"]
    (project / "a").mkdir()
    shutil.move("runs", "a/runs")
    shutil.copytree("a", "b")
    os.chdir(project / "b")
    change(0.5)
    for folder in "aba":
        os.chdir(project / folder)
        assert tracker(catalog).sync() == (1, 2)
    assert names_of("a") == names_of("b") == every
    os.chdir(project / "b")
    shutil.rmtree("runs/tiny/main/stem-third/seed1")
    tracker(catalog).sync()
    assert (names_of("a"), names_of("b")) == (every, every[:2])
    shutil.copytree(project / "a", project / "c")
    os.chdir(project / "c")
    shutil.rmtree("runs")
    tracker(catalog).sync()
    assert names_of("a") == every
    (project / "a").rename(project / "moved")
    os.chdir(project / "moved")
    tracker(catalog).sync()
    shutil.rmtree("runs")
    tracker(catalog).sync()
    assert (names_of("a"), names_of("b")) == ([], every[:2])


SYNC = """
from pathlib import Path
from stemrepro.measures.catalog import load
from stemrepro.tracking.sync import Tracker
Tracker("tiny", load(Path(sys.argv[1]) / "recipes"), Path("runs"), Path("scores")).sync()
"""


def start(script):
    """Start a process that syncs, to the database of this folder."""
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    command = [sys.executable, "-c", f"import sys\n{script}{SYNC}", str(ROOT)]
    return subprocess.Popen(command, env=environment | {"PYTHONPATH": str(ROOT)})


@pytest.mark.slow
def test_two_processes_make_one_database_and_sync_at_once(project, monkeypatch):
    Path("mlflow.db").unlink()
    assert [process.wait() for process in [start(""), start("")]] == [0, 0]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    assert [name for name, _ in kept()] == ["stem-third", "stem-third seed 0", "stem-third seed 1"]
    assert "clone" not in by_name()["stem-third"].data.tags  # nobody else tracks to it


@pytest.mark.slow
def test_a_kill_while_the_database_is_made_leaves_none(project, catalog, monkeypatch):
    Path("mlflow.db").unlink()
    killed = start("import os, signal\nos.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n")
    assert killed.wait() == -signal.SIGKILL
    assert Path("mlflow.db.new").exists()
    assert not Path("mlflow.db").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    assert tracker(catalog).sync() == (1, 2)
    assert not Path("mlflow.db.new").exists()


def test_an_arm_without_run_folders_has_its_scores(project, catalog, made_scores):
    """As in a clone: gap, costs and seeds, no run below, and the view's columns are what arms have."""
    shutil.rmtree("runs")
    assert tracker(catalog).sync() == (2, 0)
    runs = by_name()
    assert set(runs) == {"dense", "stem-third"}
    assert runs["stem-third"].data.metrics["final/prose_gap"] == pytest.approx(made_scores, abs=1e-6)
    assert runs["dense"].data.metrics["final/prose_gap"] == 0
    assert runs["stem-third"].data.tags["seeds"] == "2"
    summary = json.loads(Path("scores/tiny/losses/main/stem-third/summary.json").read_text())
    metrics = runs["stem-third"].data.metrics
    assert metrics["cost/flops_per_token"] == summary["forward_flops_per_token"]
    assert metrics["cost/parameters"] == summary["parameters"]["total"]
    tags = MlflowClient(tracking_uri()).get_experiment_by_name("stemrepro tiny").tags
    columns = json.loads(json.loads(tags["mlflow.sharedViewState.arms"])["state"])["selectedColumns"]
    assert {"metrics.`final/prose_gap`", "metrics.`final/prose_loss`", "tags.`seeds`"} <= set(columns)
    for column in columns:
        kind, name = column.replace("`", "").split(".", 1)
        assert name in getattr(runs["stem-third"].data, kind)


def test_a_mean_that_changes_is_shown(project, catalog, score_arm, make_run):
    """Of values at one step MLflow shows that of the latest time, whichever is higher."""
    runs = [make_run("stem-third", seed) for seed in (0, 1)]
    for chosen in (runs[:1], runs[1:], runs[:1]):
        prose = float(score_arm(chosen).mean())
        tracker(catalog).sync()
        assert by_name()["stem-third"].data.metrics["final/prose_loss"] == pytest.approx(prose, abs=1e-6)
        time.sleep(0.01)


def test_a_diverged_run_failed(project, catalog):
    folder = Path("runs/tiny/main/stem-third/seed1")
    (folder / "weights.safetensors").rename(folder / "diverged.json")
    tracker(catalog).sync()
    assert statuses() == {"stem-third": "FINISHED", "stem-third seed 0": "FINISHED", "stem-third seed 1": "FAILED"}


@pytest.mark.slow
def test_a_locked_database(project, catalog, monkeypatch):
    monkeypatch.setattr(sqlite3.dbapi2, "connect", partial(sqlite3.connect, timeout=0.1))  # 5 by default

    def impatient(_connection, _cursor, statement, parameters, _context, _many):
        return statement.replace("busy_timeout = 20000", "busy_timeout = 100"), parameters

    event.listen(Engine, "before_cursor_execute", impatient, retval=True)
    holder = sqlite3.connect("mlflow.db", timeout=0)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UserError, match=r"mlflow\.db is locked by another process"):
        tracker(catalog).sync()
    holder.rollback()
    event.remove(Engine, "before_cursor_execute", impatient)
    assert tracker(catalog).sync() == (1, 2)


def test_a_damaged_or_unreachable_one(project, catalog, monkeypatch):
    Path("bad.db").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/bad.db")
    with pytest.raises(UserError, match=r"bad\.db is damaged; delete the file and run 'stemrepro track'"):
        tracker(catalog).sync()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"MLflow at http://127\.0\.0\.1:9 can't be used"):
        tracker(catalog).sync()


def test_one_that_was_killed_while_mlflow_made_it(project, catalog):
    """Its last table is missing, and the step that adds columns isn't noted."""
    with closing(sqlite3.connect(project / "mlflow.db")) as base, base:
        base.execute("DROP TABLE experiments")
        base.execute("UPDATE alembic_version SET version_num = '2d6e25af4d3e'")
    with pytest.raises(UserError, match=r"mlflow\.db is damaged; delete the file and run 'stemrepro track'"):
        tracker(catalog).sync()


@pytest.mark.slow
def test_a_server(project, catalog, made_scores, monkeypatch, capfd):
    """The server that `make ui` starts takes the runs as well as the file does, and serves its page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).parent / "mlflow"), "server", "--backend-store-uri", "sqlite:///mlflow.db",
               "--port", str(port), "--workers", "1"]  # fmt: skip
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open("server.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(600):
            try:
                page = urllib.request.urlopen(uri, timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        assert b"<title>MLflow" in page
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert tracker(catalog).sync() == (2, 2)
        before = content()
        assert len(before) == 4
        tracker(catalog).sync()
        assert content() == before
        assert "View run" not in capfd.readouterr().out
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def test_a_run_with_a_network_of_somebody_elses_file_is_shown_and_the_file_not_executed(project, catalog):
    folders = [Path(f"runs/tiny/main/stem-third/seed{seed}") for seed in (0, 1)]
    (folders[0] / "evil.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    for folder in folders:
        config = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(config.replace("ffn: stem\n", f"ffn: {folders[0]}/evil.py:Rows\n"))
    assert tracker(catalog).sync() == (1, 2)
    assert by_name()["stem-third"].data.params["model.ffn"].endswith("evil.py:Rows")
    assert not Path("executed").exists()


def test_a_damaged_run_folder_is_named(project, catalog):
    Path("runs/tiny/main/stem-third/seed0/config.yaml").write_text("arm: {name")
    with pytest.raises(UserError, match=r"seed0/config\.yaml is missing or damaged"):
        tracker(catalog).sync()
