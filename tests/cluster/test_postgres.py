"""MLflow and Optuna on a real PostgreSQL, by the commands of docs/cluster.md; a worker is killed in a sweep."""

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import optuna
import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient

from stemrepro.config.address import MAIN, Address
from stemrepro.training.train import train
from tests.cluster.conftest import free_port, waited
from tests.conftest import ROOT, TINY, quiet

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SWEEP = {
    "title": "t", "sampler": "grid",
    "space": {"arm": ["dense", "stem-full"], "learning_rate": [0.01, 0.02, 0.04], "seed": [100]},
}  # fmt: skip


@pytest.fixture
def project(sample, tmp_path, monkeypatch):
    """A folder with recipes, a scale and its text."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY))
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    return tmp_path


def command(*arguments: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "stemrepro.cli", *arguments], env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_sweep_of_two_commands_loses_no_point_when_one_is_killed(postgres, project):
    (project / "grid.yaml").write_text(yaml.safe_dump(SWEEP))
    address = f"postgresql+psycopg2://{postgres}/optuna"
    sweep = ("sweep", "grid.yaml", "--scale", "tiny")
    first = command(*sweep, OPTUNA_STORAGE=address)

    def trials() -> list:
        names = optuna.get_all_study_names(address)
        return optuna.load_study(study_name=names[0], storage=address).trials if names else []

    waited(lambda: any(trial.state.is_finished() for trial in trials()), "the first trial")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = command(*sweep, OPTUNA_STORAGE=address)
    assert second.wait(300) == 0
    assert optuna.get_all_study_names(address) == ["sweeps/tiny/grid/grid"]
    assert len([trial for trial in trials() if trial.state.name == "COMPLETE"]) == 6
    assert len(pd.read_csv("results/tiny/sweeps/grid/data.csv")) == 6
    assert not Path("sweeps/tiny/grid/study.db").exists()


def test_runs_are_tracked_by_a_server(postgres, project, runs_in):
    make = runs_in(project / "runs/tiny")
    for arm in ("dense", "stem-full"):
        train(make(arm), quiet)
    assert (project / "runs/tiny" / Address(MAIN, "dense").path / "seed0").is_dir()
    port = free_port()
    server = subprocess.Popen(
        [str(Path(sys.executable).parent / "mlflow"), "server", "--backend-store-uri",
         f"postgresql+psycopg2://{postgres}/mlflow", "--artifacts-destination", "artifacts", "--port", str(port),
         "--workers", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )  # fmt: skip
    uri = f"http://127.0.0.1:{port}"

    def up() -> bool:
        try:
            return urllib.request.urlopen(uri, timeout=5).status == 200
        except OSError:
            return False

    try:
        waited(up, "the server's start", 120)
        assert command("track", "--scale", "tiny", MLFLOW_TRACKING_URI=uri).wait(120) == 0
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("stemrepro tiny")
        names = [run.info.run_name for run in client.search_runs([experiment.experiment_id])]
        assert {"dense", "stem-full"} <= set(names)
    finally:
        os.killpg(server.pid, 9)
        server.wait()
