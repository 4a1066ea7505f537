"""MLflow against the run folders: one run each, whatever happened in between."""

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, suppress
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
from stemrepro.tracking import state as tracked
from stemrepro.tracking import sync as tracking
from stemrepro.tracking.page import WIDTHS
from stemrepro.tracking.state import Held, held, page, remember, sources, tracking_uri
from stemrepro.tracking.sync import Tracker
from stemrepro.training.train import train
from tests.browser import chromium
from tests.conftest import ROOT, quiet


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """MLflow takes seconds to make one; tests copy it."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def project(tmp_path, monkeypatch, empty_database, make_run):
    """Two finished runs of one arm below runs/tiny, and a database."""
    monkeypatch.chdir(tmp_path)
    database(tmp_path / "mlflow.db", empty_database, monkeypatch)
    for seed in (0, 1):
        train(make_run("stem-third", seed), quiet)
    shutil.copytree(tmp_path / "main", tmp_path / "runs" / "tiny" / "main")
    return tmp_path


def database(path, empty, monkeypatch):
    """A fresh database. Each has its own name, because MLflow keeps the connection of a name for as long as it lives."""
    shutil.copy(empty, path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")


@pytest.fixture
def made_scores(project, tiny, make_run):
    """Losses of dense (three seeds) and STEM 1/3 (two), scored from runs; the gap over the seeds that both have."""
    given, found = {"asked": tiny.evaluation, "level": "losses"}, {}
    for arm, seeds in (("dense", (0, 1, 2)), ("stem-third", (0, 1))):
        runs = [make_run(arm, seed) for seed in seeds]
        for run in runs:
            train(run, quiet)
        folder = Path("scores/tiny/losses/main") / arm
        write_scores("losses", runs, [losses.score(run, quiet, **given) for run in runs], given, folder, "key")
        table = pd.read_csv(folder / "losses.csv", dtype={"bucket": str})
        prose = table[(table.by == "pair") & table.source.isin(prose_of(tuple(table.source.unique())))]
        sums = prose.groupby(["seed", "source"])[["nats", "tokens"]].sum()
        found[arm] = (sums.nats / sums.tokens).groupby("seed").mean()
    return float((found["dense"] - found["stem-third"]).mean())  # pandas leaves out the seed that one lacks


def tracker(catalog):
    return Tracker("tiny", catalog, Path("runs"), Path("scores"), Path("results"))


def content(experiment):
    """All that MLflow holds, by run key, without its own ids and times."""
    client, found = MlflowClient(tracking_uri()), {}
    for run in client.search_runs([experiment]):
        history = {
            key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
            for key in run.data.metrics
        }
        tags = {key: value for key, value in run.data.tags.items() if key not in ("mlflow.parentRunId", "mlflow.user")}
        found[run.data.tags["run_key"]] = (run.info.run_name, run.info.status, run.data.params, history, tags)
    return found


def test_runs_at_points_stand_in_an_experiment_of_their_own(project, catalog):
    shutil.copytree("runs/tiny/main/stem-third", "runs/tiny/rate-4/stem-third")
    for seed in (0, 1):
        config = Path(f"runs/tiny/rate-4/stem-third/seed{seed}/config.yaml")
        config.write_text(config.read_text().replace("variant: main", "variant: rate-4"))
    sync = tracker(catalog)
    assert sync.sync("stem-third@rate-4") == (1, 2)
    client = MlflowClient(tracking_uri())
    assert client.get_experiment(sync.variants).name == "stemrepro tiny, variants"
    assert not client.search_runs([sync.experiment])  # they would bury the arms
    runs = {run.info.run_name: run for run in client.search_runs([sync.variants])}
    assert set(runs) == {"stem-third@rate-4", "stem-third@rate-4 seed 0", "stem-third@rate-4 seed 1"}
    tags = runs["stem-third@rate-4 seed 1"].data.tags
    assert (tags["recipes"], tags["variant"], tags["dvc_stage"]) == ("training_stability", "rate-4", "train@tiny")
    assert sync.sync() == (2, 4)


def test_a_run_has_its_parameters_metrics_and_tags(project, catalog):
    sync = tracker(catalog)
    assert sync.sync() == (1, 2)
    runs = {run.info.run_name: run for run in MlflowClient(tracking_uri()).search_runs([sync.experiment])}
    assert set(runs) == {"stem-third", "stem-third seed 0", "stem-third seed 1"}
    run = runs["stem-third seed 1"]
    rows = [json.loads(line) for line in Path("runs/tiny/main/stem-third/seed1/metrics.jsonl").read_text().splitlines()]
    history = MlflowClient(tracking_uri()).get_metric_history(run.info.run_id, "training/loss")
    assert [(m.step, m.value) for m in history] == [(row["step"], row["loss"]) for row in rows]
    assert run.data.metrics["loss_curve/bible"] == rows[-1]["validation"]["bible"]
    assert run.data.params["model.replaced_layers"] == "[1]"
    assert run.info.status == "FINISHED"
    expected = {
        "scale": "tiny",
        "arm": "stem-third",
        "seed": "1",
        "variant": "main",
        "dvc_stage": "train@tiny",
        "recipes": ", ".join(
            name for name, recipe in catalog.recipes.items() if Address(MAIN, "stem-third") in recipe.wanted()
        ),
    }
    assert expected.items() <= run.data.tags.items()
    about = json.loads(Path("runs/tiny/main/stem-third/seed1/provenance.json").read_text())
    assert {
        "params_hash": about["params_hash"],
        "data_hash": about["data_hash"][:12],
        "commit": about["commit"],
    }.items() <= run.data.tags.items()
    mean = runs["stem-third"]
    assert run.data.tags["mlflow.parentRunId"] == mean.info.run_id
    other = runs["stem-third seed 0"].data.metrics["loss_curve/bible"]
    assert mean.data.metrics["loss_curve/bible"] == pytest.approx((other + run.data.metrics["loss_curve/bible"]) / 2)


def test_a_long_run_is_thinned_but_for_its_marks(project, catalog, monkeypatch):
    """No more than POINTS steps of twelve, evenly, and every mark wherever it stands; also when rows come in two goes."""
    monkeypatch.setattr(tracking, "POINTS", 4)
    path = Path("runs/tiny/main/stem-third/seed1/metrics.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    path.write_text("".join(lines[:7]))
    tracker(catalog).sync()
    path.write_text("".join(lines))
    sync = tracker(catalog)
    sync.sync()
    runs = {run.info.run_name: run for run in MlflowClient(tracking_uri()).search_runs([sync.experiment])}
    history = MlflowClient(tracking_uri()).get_metric_history(runs["stem-third seed 1"].info.run_id, "training/loss")
    marks = {row["step"] for row in rows if "validation" in row}
    assert marks - {3, 6, 9, 12}
    assert [m.step for m in history] == sorted(marks | {3, 6, 9, 12})


def test_a_second_look_takes_up_only_what_changed(project, catalog, monkeypatch):
    """A look at every run would take longer than the pause between two."""
    shutil.copytree("runs/tiny/main/stem-third", "runs/tiny/main/dense")
    for seed in (0, 1):
        config = Path(f"runs/tiny/main/dense/seed{seed}/config.yaml")
        config.write_text(config.read_text().replace("arm: stem-third", "arm: dense"))
    looked, once = [], Tracker.sync_arm
    monkeypatch.setattr(Tracker, "sync_arm", lambda self, address: looked.append(address.arm) or once(self, address))
    sync = tracker(catalog)
    assert (sync.sync().runs, looked) == (4, ["dense", "stem-third"])
    assert (sync.sync().runs, looked) == (4, ["dense", "stem-third"])
    with open("runs/tiny/main/stem-third/seed0/metrics.jsonl", "a") as file:
        file.write("\n")
    assert (sync.sync().runs, looked) == (4, ["dense", "stem-third", "stem-third"])
    figure = Path("results/tiny/validation_loss/figure.png")
    figure.parent.mkdir(parents=True)
    figure.write_bytes(b"picture")
    assert (sync.sync().runs, looked[3:]) == (4, ["dense", "stem-third"])


def test_again_changes_nothing_and_a_deleted_database_is_rebuilt(project, catalog, empty_database, monkeypatch):
    sync = tracker(catalog)
    sync.sync()
    before = content(sync.experiment)
    tracker(catalog).sync()
    assert content(sync.experiment) == before
    database(project / "rebuilt.db", empty_database, monkeypatch)
    again = tracker(catalog)
    again.sync()
    assert content(again.experiment) == before


def test_one_run_through_kill_and_resume(project, catalog, empty_database, monkeypatch):
    """Synced while it trains, after a kill that lost rows, and at its end."""
    folder = Path("runs/tiny/main/stem-third/seed1")
    rows, weights, about = (
        (folder / "metrics.jsonl").read_text(),
        (folder / "weights.safetensors").read_bytes(),
        (folder / "provenance.json").read_text(),
    )
    sync = tracker(catalog)
    sync.sync()
    complete = content(sync.experiment)
    database(project / "live.db", empty_database, monkeypatch)
    for name in ("weights.safetensors", "provenance.json"):
        (folder / name).unlink()
    lines = rows.splitlines(keepends=True)
    for count in (5, 10, 5, 12):
        (folder / "metrics.jsonl").write_text("".join(lines[:count]))
        live = tracker(catalog)
        live.sync()
        statuses = {name: status for name, status, *_ in content(live.experiment).values()}
        assert statuses == {"stem-third": "RUNNING", "stem-third seed 0": "FINISHED", "stem-third seed 1": "RUNNING"}
    (folder / "provenance.json").write_text(about)
    (folder / "weights.safetensors").write_bytes(weights)
    live.sync()
    assert content(live.experiment) == complete


def test_scores_and_figures_of_the_same_settings(
    project, catalog, sample, asked, tiny, make_run, empty_database, monkeypatch
):
    runs = [make_run("stem-third", seed) for seed in (0, 1)]
    given = {"asked": tiny.evaluation, "level": "losses"}
    scored = [losses.score(run, quiet, **given) for run in runs]
    write_scores("losses", runs, scored, given, Path("scores/tiny/losses/main/stem-third"), "key")
    given = {"asked": asked, "tokenizer_file": sample / "tokenizer.json", "items": sample / "items"}
    scored = [benchmarks.score(run, quiet, **given) for run in runs]
    write_scores("benchmarks", runs, scored, given, Path("scores/tiny/benchmarks/main/stem-third"), "key")
    figure = Path("results/tiny/validation_loss/figure.png")
    figure.parent.mkdir(parents=True)
    figure.write_bytes(b"picture")
    sync = tracker(catalog)
    sync.sync()
    client = MlflowClient(tracking_uri())
    runs = {run.info.run_name: run for run in client.search_runs([sync.experiment])}
    expected = 100 * scored[1]["openbookqa"]["acc_norm"].mean()
    assert runs["stem-third seed 1"].data.metrics["tasks/openbookqa"] == pytest.approx(expected)
    assert "final/prose_loss" in runs["stem-third seed 0"].data.metrics
    mean = runs["stem-third"].data.metrics
    values = [runs[f"stem-third seed {seed}"].data.metrics["final/prose_loss"] for seed in (0, 1)]
    assert mean["final/prose_loss"] == pytest.approx(sum(values) / 2)
    assert mean["variation_over_seeds/prose_loss"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-6)
    (artifact,) = client.list_artifacts(runs["stem-third"].info.run_id, "figures/validation_loss")
    assert artifact.path.endswith("figure.png")
    summary = Path("scores/tiny/losses/main/stem-third/summary.json")
    summary.write_text(summary.read_text().replace(json.loads(summary.read_text())["params_hash"], "other"))
    database(project / "fresh.db", empty_database, monkeypatch)
    fresh = tracker(catalog)
    fresh.sync()
    scored = {key for key, found in content(fresh.experiment).items() if "final/prose_loss" in found[3]}
    assert scored == {
        "tiny/stem-third/other"
    }  # of other settings than the runs have: an arm of its own, none of whose runs are here
    assert len(content(fresh.experiment)) == 4


def kept(sync, which=ViewType.ACTIVE_ONLY):
    """Names of runs in the scale's own experiment and the commit or seed that tells them apart."""
    runs = MlflowClient(tracking_uri()).search_runs([sync.experiment], "", which)
    return sorted((run.info.run_name, run.data.tags["run_key"].rpartition("/")[2]) for run in runs)


def change(rate, seeds=(0, 1), arm="stem-third"):
    """Gives run folders another learning rate, as training with it does."""
    for seed in seeds:
        path = Path(f"runs/tiny/main/{arm}/seed{seed}/config.yaml")
        path.write_text(re.sub("learning_rate: .*", f"learning_rate: {rate}", path.read_text()))


def test_what_was_retrained_leaves_the_view_and_can_come_back(project, catalog):
    sync = tracker(catalog)
    sync.sync()
    before = kept(sync)
    config = Path("runs/tiny/main/stem-third/seed0/config.yaml").read_text()
    first = float(re.search("learning_rate: (.*)", config)[1])
    change(0.5)
    sync.sync()
    after = kept(sync)
    assert [name for name, _ in after] == [name for name, _ in before]
    assert not {key for _, key in after} & {key for _, key in before}
    assert kept(sync, ViewType.DELETED_ONLY) == before
    children = [
        run for run in MlflowClient(tracking_uri()).search_runs([sync.experiment]) if "seed" in run.info.run_name
    ]
    assert {run.data.params["training.learning_rate"] for run in children} == {"0.5"}
    change(first)
    tracker(catalog).sync()
    assert kept(sync) == before
    assert kept(sync, ViewType.DELETED_ONLY) == after


def test_a_run_whose_folder_is_gone_leaves_and_so_does_an_arm(project, catalog):
    shutil.copytree("runs/tiny/main/stem-third", "runs/tiny/main/dense")
    for seed in (0, 1):
        config = Path(f"runs/tiny/main/dense/seed{seed}/config.yaml")
        config.write_text(config.read_text().replace("arm: stem-third", "arm: dense"))
    sync = tracker(catalog)
    table = pd.DataFrame([{"arm": "dense", "learning_rate": 0.1, "seed": 0, "prose": 4.0, "state": "COMPLETE"}])
    sync.sync_sweep("rates", table, Path("results"))
    sync.sync()
    shutil.rmtree("runs/tiny/main/stem-third/seed1")
    sync.sync()
    assert [name for name, _ in kept(sync, ViewType.DELETED_ONLY)] == ["stem-third seed 1"]
    shutil.rmtree("runs/tiny/main/dense")
    sync.sync("stem-third")
    assert len(kept(sync)) == 7  # a look at one arm says nothing of others
    sync.sync()
    assert [name for name, _ in kept(sync)] == ["dense 0.1 seed 0", "stem-third", "stem-third seed 0", "sweep rates"]


def test_a_setting_that_was_tried_anew_shows_its_new_loss(project, catalog):
    table, sync = (
        pd.DataFrame([{"arm": "dense", "learning_rate": 0.1, "seed": 0, "prose": 4.0, "state": "complete"}]),
        tracker(catalog),
    )
    for prose in (4.0, 4.5, 4.5):
        sync.sync_sweep("rates", table.assign(prose=prose), Path("results"))
    (run,) = MlflowClient(tracking_uri()).search_runs([sync.experiment], "tags.state = 'complete'")
    assert run.data.metrics == {"tune/prose_loss": 4.5}
    assert [
        own.value for own in MlflowClient(tracking_uri()).get_metric_history(run.info.run_id, "tune/prose_loss")
    ] == [4.0, 4.5]


def names_of(sync, folder):
    """Active runs that a folder has in a place that it shares."""
    runs = MlflowClient(tracking_uri()).search_runs([sync.experiment])
    return sorted(run.info.run_name for run in runs if run.data.tags["clone"].startswith(f"{folder} "))


def test_two_clones_in_one_place_keep_their_own(project, catalog, empty_database, monkeypatch):
    """Each has runs of the same arm, at another rate; a copy of one is a third."""
    database(project / "shared.db", empty_database, monkeypatch)
    every = ["stem-third", "stem-third seed 0", "stem-third seed 1"]
    (project / "a").mkdir()
    shutil.move("runs", "a/runs")
    shutil.copytree("a", "b")
    monkeypatch.chdir(project / "b")
    change(0.5)
    for folder in "aba":
        monkeypatch.chdir(project / folder)
        sync = tracker(catalog)
        assert sync.sync() == (1, 2)
    assert names_of(sync, "a") == names_of(sync, "b") == every
    monkeypatch.chdir(project / "b")
    shutil.rmtree("runs/tiny/main/stem-third/seed1")
    tracker(catalog).sync()
    assert (names_of(sync, "a"), names_of(sync, "b")) == (every, every[:2])
    shutil.copytree(project / "a", project / "c")
    monkeypatch.chdir(project / "c")
    shutil.rmtree("runs")
    tracker(catalog).sync()
    assert names_of(sync, "a") == every
    (project / "a").rename(project / "moved")
    monkeypatch.chdir(project / "moved")
    tracker(catalog).sync()
    shutil.rmtree("runs")
    tracker(catalog).sync()
    assert (names_of(sync, "a"), names_of(sync, "b")) == ([], every[:2])
    table = json.loads(MlflowClient(tracking_uri()).get_experiment(sync.experiment).tags["mlflow.sharedViewState.arms"])
    assert "tags.`clone`" in json.loads(table["state"])["selectedColumns"]


def test_a_copied_folder_leaves_the_first_alone(project, catalog, made_scores, monkeypatch):
    """MLflow notes absolute places of artifacts in its database, which the copy has too."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (project / "a").mkdir()
    for name in ("runs", "scores"):
        shutil.move(name, f"a/{name}")

    def track(folder, picture):
        """Tracks there, in a process of its own as MLflow keeps databases by their name; returns what lies in the folder of artifacts."""
        monkeypatch.chdir(project / folder)
        figure = Path("results/tiny/validation_loss/figure.png")
        figure.parent.mkdir(parents=True, exist_ok=True)
        figure.write_bytes(picture)
        script = "from tests.tracking.test_sync import *; from stemrepro.measures.catalog import load; tracker(load(ROOT / 'recipes')).sync()"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)
        return {path: path.read_bytes() for path in Path("mlruns").rglob("*.png")}

    before = track("a", b"picture")
    assert set(before.values()) == {b"picture"}
    shutil.copytree(project / "a", project / "b")
    assert set(track("b", b"another").values()) == {b"another"}
    monkeypatch.chdir(project / "a")
    assert {path: path.read_bytes() for path in Path("mlruns").rglob("*.png")} == before
    (project / "b").rename(project / "c")
    track("c", b"another")
    assert not (project / "b").exists()
    monkeypatch.chdir(project / "c")
    base = sqlite3.connect("mlflow.db")
    places = [place for (place,) in base.execute("SELECT artifact_uri FROM runs")]
    assert places
    assert all(place.startswith(f"{project}/c/mlruns/") for place in places)


def test_an_arm_whose_runs_are_robustness_has_its_scores(project, catalog, made_scores):
    """As in a clone: gap, costs, seeds and words, and no run below."""
    shutil.rmtree("runs")
    sync = tracker(catalog)
    assert sync.sync() == (2, 0)
    runs = {run.info.run_name: run for run in MlflowClient(tracking_uri()).search_runs([sync.experiment])}
    assert set(runs) == {"dense", "stem-third"}
    assert runs["stem-third"].data.metrics["final/prose_gap"] == pytest.approx(made_scores, abs=1e-6)
    assert runs["dense"].data.metrics["final/prose_gap"] == 0
    assert runs["stem-third"].data.tags["seeds"] == "2"
    assert "feed-forward network `stem`" in runs["stem-third"].data.tags["mlflow.note.content"]


def test_a_mean_that_falls_is_shown(project, catalog, made_scores):
    """Of values at one step MLflow shows the one of the latest time, of these the highest."""
    sync = tracker(catalog)
    sync.sync()
    client = MlflowClient(tracking_uri())
    (arm,) = client.search_runs([sync.experiment], "tags.kind = 'arm' and tags.arm = 'stem-third'")
    client.log_metric(arm.info.run_id, "final/prose_loss", 99.0, step=0)
    assert client.get_run(arm.info.run_id).data.metrics["final/prose_loss"] == 99
    time.sleep(0.01)
    tracker(catalog).sync()
    assert client.get_run(arm.info.run_id).data.metrics["final/prose_loss"] == arm.data.metrics["final/prose_loss"]


def test_a_diverged_run_failed(project, catalog):
    folder = Path("runs/tiny/main/stem-third/seed1")
    (folder / "weights.safetensors").rename(folder / "diverged.json")
    sync = tracker(catalog)
    sync.sync()
    statuses = {name: status for name, status, *_ in content(sync.experiment).values()}
    assert statuses == {"stem-third": "FINISHED", "stem-third seed 0": "FINISHED", "stem-third seed 1": "FAILED"}


def test_what_is_known_to_be_tracked_is_not_looked_at_again(project, catalog):
    """Until a file on either side changes: MLflow takes seconds to open."""
    assert held("tiny") is None
    before = sources("tiny")
    sync = tracker(catalog)
    remember("tiny", Held(*sync.sync(), sync.place), before)
    assert held("tiny") == (1, 2, sync.place)
    about = Path("runs/tiny/main/stem-third/seed1/provenance.json")
    text = about.read_text()
    about.write_text("null")
    assert held("tiny") is None
    assert tracker(catalog).sync().runs == 2  # whoever wrote that: the run counts, its commit isn't known
    about.write_text(text)
    remember("tiny", Held(*sync.sync(), sync.place), sources("tiny"))
    Path("mlflow.db").unlink()
    assert held("tiny") is None


def test_another_way_of_tracking_is_looked_at_again(project, tmp_path, monkeypatch):
    place = Path(shutil.copytree(Path(tracked.__file__).parent, tmp_path / "code"))
    monkeypatch.setattr(tracked, "__file__", str(place / "state.py"))
    for path in (path for path in place.glob("*.py") if path.name != "__init__.py"):
        before = sources("tiny")
        path.write_text(path.read_text() + "#\n")
        assert sources("tiny") != before


def test_the_address_is_that_of_the_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert page("#/experiments/1", 5001) == "http://127.0.0.1:5001/#/experiments/1"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user@host/mlflow")
    assert page("#/experiments/1", 5001) == "http://127.0.0.1:5001/#/experiments/1"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert page("#/experiments/1", 5001) == "https://mlflow.example.org/#/experiments/1"


def test_a_locked_database(project, catalog, monkeypatch):
    def impatient(_connection, _cursor, statement, parameters, _context, _many):
        return statement.replace("busy_timeout = 20000", "busy_timeout = 100"), parameters

    event.listen(Engine, "before_cursor_execute", impatient, retval=True)
    sync = tracker(catalog)
    holder = sqlite3.connect("mlflow.db", timeout=0)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UserError, match=r"mlflow\.db is locked by another process"):
        sync.sync()
    holder.rollback()
    event.remove(Engine, "before_cursor_execute", impatient)
    assert sync.sync().runs == 2


def test_a_missing_damaged_or_unreachable_one(project, catalog, monkeypatch):
    Path("bad.db").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/bad.db")
    with pytest.raises(UserError, match=r"bad\.db is damaged; delete the file and run 'stemrepro track'"):
        tracker(catalog).sync()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match=r"MLflow at http://127\.0\.0\.1:9 can't be used"):
        tracker(catalog).sync()


def test_a_kill_while_it_is_made_leaves_none(project, catalog, monkeypatch):
    (project / "kill.py").write_text(
        "import os, signal, sys\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from stemrepro.tracking.state import made_whole\n"
        "with made_whole() as new:\n"
        "    open(new.removeprefix('sqlite:///'), 'w').write('half a database')\n"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///own.db")
    killed = subprocess.run([sys.executable, "kill.py"], env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert killed.returncode == -9
    assert not Path("own.db").exists()
    assert tracker(catalog).sync() == (1, 2)
    assert not Path("own.db.new").exists()


def test_one_that_was_killed_while_mlflow_made_it(project, catalog):
    """Its last table is missing, and the step that adds columns isn't noted."""
    with closing(sqlite3.connect(project / "mlflow.db")) as base, base:
        base.execute("DROP TABLE experiments")
        base.execute("UPDATE alembic_version SET version_num = '2d6e25af4d3e'")
    with pytest.raises(UserError, match=r"mlflow\.db is damaged; delete the file and run 'stemrepro track'"):
        tracker(catalog).sync()


def columns(browser, address):
    """The headings of the table at an address, from left to right, and the text about it."""
    page = browser.new_page(viewport={"width": 2400, "height": 900})
    page.set_default_timeout(120_000)
    page.goto(address)
    page.get_by_role("link", name="stem-third", exact=True).wait_for()
    headings = page.locator("[role=columnheader][col-id]").all()
    found = sorted(
        (heading.bounding_box()["x"], text) for heading in headings if (text := heading.inner_text().strip())
    )
    return [name for _, name in found], page.inner_text("body")


def test_a_server(project, catalog, made_scores, monkeypatch, capfd):
    """The server that `make ui` starts takes the runs as well as the file does, and serves its page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    command = [
        str(Path(sys.executable).parent / "mlflow"),
        "server",
        "--backend-store-uri",
        "sqlite:///mlflow.db",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
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
        sync = tracker(catalog)
        assert sync.sync() == (2, 2)
        assert len(content(sync.experiment)) == 4
        assert "View run" not in capfd.readouterr().out
        with suppress(UserError), chromium() as browser:  # of a machine without one
            shown, note = columns(browser, f"{uri}/{sync.place}")
            asked = [name.split("`")[1] for name in WIDTHS]
            assert [name for name in shown if name in asked] == asked
            assert "final/all_loss" not in shown
            assert "pairs of runs with the same seed" in note
            other = browser.new_page()
            other.goto(f"{uri}/#/experiments/{sync.experiment}")  # as a click in `mlflow ui` does: a view without arms
            link = other.get_by_role("link", name="see the arms side by side").first.get_attribute("href")
            assert [name for name in columns(browser, f"{uri}/{link}")[0] if name in asked] == asked
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def test_a_run_with_a_network_of_somebody_elses_file_is_shown_and_the_file_not_executed(project, catalog):
    folders = [Path(f"runs/tiny/main/stem-third/seed{seed}") for seed in (0, 1)]
    (folders[0] / "evil.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    for folder in folders:
        config = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(config.replace("ffn: stem\n", f"ffn: {folders[0]}/evil.py:Rows\n"))
    sync = tracker(catalog)
    assert sync.sync() == (1, 2)
    (arm,) = MlflowClient(tracking_uri()).search_runs([sync.experiment], "attributes.run_name = 'stem-third'")
    assert arm.data.params["model.ffn"].endswith("evil.py:Rows")
    assert not [name for name in arm.data.metrics if name.startswith("cost/")]
    assert "its costs are not counted" in arm.data.tags["mlflow.note.content"]
    assert not Path("executed").exists()


def test_a_damaged_run_folder_is_named(project, catalog):
    Path("runs/tiny/main/stem-third/seed0/config.yaml").write_text("arm: {name")
    with pytest.raises(UserError, match=r"seed0/config\.yaml is missing or damaged"):
        tracker(catalog).sync()
