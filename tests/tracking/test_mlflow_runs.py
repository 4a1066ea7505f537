"""MLflow against run folders and scores, in real databases and by a real server."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.config.sources import prose as prose_of
from stemrepro.evaluation import losses
from stemrepro.measures import store
from stemrepro.pipeline.score import write_scores
from stemrepro.tracking import follow
from stemrepro.tracking.mlflow_runs import ID, track
from stemrepro.tracking.server import address, tracking_uri
from stemrepro.training.train import train
from tests.browser import chromium
from tests.conftest import ROOT, quiet

FOLDER, SCORES = Path("runs/tiny/main/stem-third/seed1"), Path("scores/tiny")


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
    shutil.copy(empty_database, tmp_path / "mlflow.db")  # MLflow keeps the connection of an address: each has its own
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for place in ("main", "runs/tiny/main"):
        shutil.copytree(trained / "main/stem-third", tmp_path / place / "stem-third")
    return tmp_path


@pytest.fixture
def scored(project, trained, tiny, make_run):
    """Losses of dense (three seeds) and STEM 1/3 (two); each arm's by seed, by the table of its buckets."""
    shutil.copytree(trained / "main/dense", project / "main/dense")
    found, given = {}, {"asked": tiny.evaluation, "wanted": ["losses"]}
    for arm, seeds in {"stem-third": 2, "dense": 3}.items():
        runs = [make_run(arm, seed) for seed in range(seeds)]
        write_scores("losses", runs, [losses.score(run, quiet, **given) for run in runs], given, SCORES, "key")
        table = store.lines(SCORES, "losses", Address(MAIN, arm), "losses")
        prose = table[(table.by == "pair") & table.source.isin(prose_of(tuple(table.source.unique())))]
        sums = prose.groupby(["seed", "source"])[["nats", "tokens"]].sum()
        found[arm] = (sums.nats / sums.tokens).groupby("seed").mean()
    return found


def tracked(catalog, tiny, *names):
    """Track; return how many arms and runs."""
    return track("tiny", catalog.model_copy(update={"scales": {"tiny": tiny}}), names)[1:]


def by_name():
    """The MLflow runs of the scale, by name, which is each run's own."""
    client = MlflowClient(tracking_uri())
    runs = client.search_runs([client.get_experiment_by_name("stemrepro tiny").experiment_id])
    found = {run.info.run_name: run for run in runs}
    assert len(found) == len(runs)
    return found


def history(run, metric):
    return [(m.step, m.value) for m in MlflowClient(tracking_uri()).get_metric_history(run.info.run_id, metric)]


def evaluations(folder=FOLDER):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "validation" in row]


def test_a_run_has_its_settings_and_curves_and_is_logged_once(project, catalog, tiny):
    assert tracked(catalog, tiny) == (1, 2)
    runs = by_name()
    assert set(runs) == {"stem-third seed 0", "stem-third seed 1"}
    run, rows = runs["stem-third seed 1"], evaluations()
    assert len(rows) == 3
    assert history(run, "training/loss") == [(row["step"], row["loss"]) for row in rows]
    assert history(run, "loss_curve/bible") == [(row["step"], row["validation"]["bible"]) for row in rows]
    assert (run.data.params["model.replaced_layers"], run.data.params["seed"]) == ("[1]", "1")
    assert {"arm": "stem-third", "variant": "main", "kind": "run"}.items() <= run.data.tags.items()
    assert run.info.status == "FINISHED"
    assert (FOLDER / ID).read_text() == run.info.run_id
    tracked(catalog, tiny)
    again = by_name()
    assert {name: run.info.run_id for name, run in again.items()} == {
        name: run.info.run_id for name, run in runs.items()
    }
    assert history(again["stem-third seed 1"], "training/loss") == history(run, "training/loss")


def test_a_run_that_was_killed_and_resumed_goes_on_in_its_mlflow_run(project, catalog, tiny):
    """Tracked while it trains, after a kill that lost rows, and at its end."""
    weights, lines = (FOLDER / "weights.safetensors").read_bytes(), (FOLDER / "metrics.jsonl").read_text().splitlines()
    rows = evaluations()
    (FOLDER / "weights.safetensors").unlink()
    for count, shown in ((0, 0), (4, 1), (8, 2), (5, 2), (11, 2)):
        (FOLDER / "metrics.jsonl").write_text("\n".join(lines[:count]))
        tracked(catalog, tiny, "stem-third")
        run = by_name()["stem-third seed 1"]
        assert run.info.status == "RUNNING"
        assert len(history(run, "training/loss")) == shown
    (FOLDER / "metrics.jsonl").write_text("\n".join(lines))
    (FOLDER / "weights.safetensors").write_bytes(weights)
    tracked(catalog, tiny)
    end = by_name()["stem-third seed 1"]
    assert (end.info.run_id, end.info.status) == (run.info.run_id, "FINISHED")
    assert history(end, "training/loss") == [(row["step"], row["loss"]) for row in rows]


def test_other_settings_and_another_database_make_another_run(project, catalog, tiny, empty_database, monkeypatch):
    tracked(catalog, tiny)
    before = (FOLDER / ID).read_text()
    config = (FOLDER / "config.yaml").read_text()
    (FOLDER / "config.yaml").write_text(config.replace("seed: 1", "seed: 5"))
    (FOLDER / "weights.safetensors").rename(FOLDER / "diverged.json")
    tracked(catalog, tiny)
    run = by_name()["stem-third seed 5"]
    assert run.info.run_id == (FOLDER / ID).read_text() != before
    assert run.info.status == "FAILED"
    shutil.copy(empty_database, project / "other.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/other.db")
    assert tracked(catalog, tiny) == (1, 2)
    assert set(by_name()) == {"stem-third seed 0", "stem-third seed 5"}


def test_each_arm_that_was_scored_has_one_summary(project, catalog, tiny, scored):
    """As in a clone: without run folders. The gap is over the seeds that both have."""
    shutil.rmtree("runs")
    assert tracked(catalog, tiny) == (2, 0)
    runs = by_name()
    assert set(runs) == {"dense", "stem-third"}
    stem, losses_of = runs["stem-third"], scored["stem-third"]
    expected = {
        "final/prose_loss": losses_of.mean(),
        "variation_over_seeds/prose_loss": losses_of.std(),
        "final/prose_gap": (scored["dense"] - losses_of).mean(),
    }
    assert {name: stem.data.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert runs["dense"].data.metrics["final/prose_gap"] == 0
    summary = store.about(SCORES, "losses", Address(MAIN, "stem-third"))
    assert stem.data.metrics["model/flops_per_token"] == summary["forward_flops_per_token"]
    assert stem.data.metrics["model/total_parameters"] == summary["parameters"]["total"]
    wanted = [name for name, recipe in catalog.recipes.items() if Address(MAIN, "stem-third") in recipe.wanted()]
    assert {"kind": "arm", "seeds": "2", "recipes": ", ".join(wanted)}.items() <= stem.data.tags.items()
    tracked(catalog, tiny)
    assert by_name()["stem-third"].info.run_id == stem.info.run_id
    protocol = pd.read_parquet(SCORES / "protocol.parquet")
    protocol[protocol["arm"] != "dense"].to_parquet(SCORES / "protocol.parquet")
    tracked(catalog, tiny)
    assert "final/prose_gap" not in by_name()["stem-third"].data.metrics


def test_a_copy_of_a_run_folder_is_left_out_and_named(project, catalog, tiny, capsys):
    shutil.copytree("runs/tiny/main/stem-third", "runs/tiny/main/stem-third-backup")
    assert tracked(catalog, tiny) == (1, 2)
    assert set(by_name()) == {"stem-third seed 0", "stem-third seed 1"}
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in told] == [f"runs/tiny/main/stem-third-backup/seed{seed}" for seed in (0, 1)]


def test_a_damaged_folder_or_database_is_a_sentence(project, catalog, tiny, monkeypatch):
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)  # of ten, ever farther apart
    Path("bad.db").write_bytes(b"no database" * 1000)
    for uri in (f"sqlite:///{project}/bad.db", "http://127.0.0.1:9", "sqlite:////proc/mlflow.db"):
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(UserError, match=f"MLflow at {uri} can't be used"):
            tracked(catalog, tiny)
    for uri, words in (
        ("./mlruns", "set `MLFLOW_ALLOW_FILE_STORE=true`"),
        ("mysql://u:secret@localhost/x", "MySQLdb"),
        ("http://u:secret@127.0.0.1:9", "refused"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(UserError, match=rf"can't be used \(.*{words}.*\); see MLFLOW_TRACKING_URI$") as told:
            tracked(catalog, tiny)
        assert "secret" not in str(told.value)
    (FOLDER / "config.yaml").write_text("arm: {name")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    with pytest.raises(UserError, match=r"seed1/config\.yaml is missing or damaged"):
        tracked(catalog, tiny)


FOLLOWS = """
from stemrepro.tracking import follow
follow.SECONDS = 0.5
import time
with follow.followed("tiny", ["stem-third"]):
    time.sleep(5)
"""


@pytest.mark.slow
def test_two_commands_make_one_database_and_log_each_run_once(project, monkeypatch):
    Path("mlflow.db").unlink()
    shutil.copytree(ROOT / "recipes", "recipes")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/new.db")
    command = [sys.executable, "-c", FOLLOWS]
    both = [subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) for _ in "ab"]
    assert [process.communicate()[1] for process in both] == [b"", b""]
    assert set(by_name()) == {"stem-third seed 0", "stem-third seed 1"}


def test_an_error_of_mlflow_is_one_line_and_does_not_reach_the_training(project, monkeypatch, capsys):
    monkeypatch.setattr(follow, "SECONDS", 0.1)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/mlflow.db")
    with follow.followed("tiny", ["stem-third"]):
        time.sleep(1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stemrepro: MLflow is not up to date: ")


@pytest.mark.slow
def test_the_printed_address_lists_the_arms_of_a_server_widest_gap_first(project, catalog, tiny, scored, monkeypatch):
    """The server that `make ui` starts takes runs as well as the file does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    options = f"--backend-store-uri sqlite:///mlflow.db --port {port} --workers 1".split()
    command = [str(Path(sys.executable).parent / "mlflow"), "server", *options]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open("server.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(uri, timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert tracked(catalog, tiny) == (2, 2)
        experiment = MlflowClient(uri).get_experiment_by_name("stemrepro tiny").experiment_id
        with chromium() as browser:
            page = browser.new_page(viewport={"width": 1600, "height": 900})
            page.goto(address(experiment, port))
            page.get_by_text("2 matching runs").wait_for(timeout=60_000)
            page.get_by_text("model/flops_per_token").first.wait_for(timeout=60_000)
            text = page.inner_text("body")
        assert "stem-third seed" not in text
        gaps = {name: run.data.metrics["final/prose_gap"] for name, run in by_name().items() if "seed" not in name}
        first, second = sorted(gaps, key=gaps.get, reverse=True)
        assert text.index(f"\n{first}\n") < text.index(f"\n{second}\n")
    finally:
        os.killpg(server.pid, 9)
        server.wait()
