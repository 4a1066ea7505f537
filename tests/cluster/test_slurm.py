"""The job files of slurm/ under a real Slurm: shares are trained, a job whose time is up goes on, scores follow.

A scale's launcher hands them the training of a stage.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from stemrepro.pipeline import plan as planning
from stemrepro.pipeline.stages import write_stamps
from stemrepro.training.checkpoint import newest
from tests.cluster.conftest import waited
from tests.conftest import ROOT, TINY

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LAUNCHER = "sbatch --wait --cpus-per-task=1 --nodes={} --array={} slurm/train.sbatch"


@pytest.fixture
def make_project(slurm, sample, tmp_path, monkeypatch):
    """make_project(launcher=...) -> the plan of a scale with this field; its text, and `stemrepro` for jobs."""
    monkeypatch.chdir(tmp_path)
    for name in ("recipes", "slurm", "analysis"):
        shutil.copytree(ROOT / name, name)
    training = TINY["training"] | {"tokens": 32 * 4 * 120, "save_every": 10}
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/stemrepro"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m stemrepro.cli "$@"\n')
    command.chmod(0o755)
    for name, value in (slurm | {"SCALE": "tiny", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}).items():
        monkeypatch.setenv(name, value)

    def made(**fields):
        scale = TINY | {"training": training} | fields
        (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(scale))
        return planning.write("tiny", ("validation_loss",))[1]

    return made


def submit(*command: str) -> str:
    done = subprocess.run(
        ["sbatch", "--parsable", "--cpus-per-task=1", *command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def states(job: str) -> str:
    shown = subprocess.run(["squeue", "-h", "-r", "-j", job, "-o", "%t"], capture_output=True, text=True)
    return shown.stdout.strip()


def test_an_array_trains_all_shares_goes_on_after_its_time_and_is_scored(make_project, tmp_path):
    addresses, runs = make_project().planned("tiny"), tmp_path / "runs/tiny"

    def ended() -> int:
        return len([*runs.glob("*/*/seed0/weights.safetensors")])

    job = submit("--array=1-2", "slurm/train.sbatch", "stemrepro", "train", "--scale", "tiny", "--untracked")
    waited(lambda: ended() >= 2, "the first runs")
    subprocess.run(["scancel", "--signal=TERM", "--batch", job], check=True)  # as when its time is up
    waited(lambda: states(job) == "PD\nPD", "the requeue", 120)
    before = ended()
    assert before < len(addresses)
    weights = {path: path.stat().st_mtime_ns for path in runs.glob("*/*/seed0/weights.safetensors")}
    waited(lambda: not states(job), "the rest", 300)
    assert ended() == len(addresses)
    assert weights == {path: path.stat().st_mtime_ns for path in weights}  # what had ended wasn't trained again
    logs = [(tmp_path / f"stemrepro-train-{job}_{number}.log").read_text() for number in (1, 2)]
    assert all("the same command resumes the rest" in log for log in logs), logs
    job = submit("slurm/score.sbatch", "losses")
    waited(lambda: not states(job), "scoring", 300)
    assert len([*(tmp_path / "scores/tiny/losses").glob("*/*/summary.json")]) == len(addresses)


def test_dvc_waits_for_the_job_of_a_stage_that_was_killed(make_project, tmp_path):
    """DVC is outside, the job inside the stage; the second `dvc repro` submits none."""
    project, runs = make_project(launcher=LAUNCHER.format(1, "1-2")), tmp_path / "runs/tiny"
    addresses = project.planned("tiny")
    shutil.copytree(ROOT / ".dvc", ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    blocks = tmp_path / "data/tiny/blocks"
    text = blocks.resolve()
    blocks.unlink()
    shutil.copytree(text, blocks)  # DVC takes no links
    (tmp_path / "data/tiny/vocabularies").mkdir()
    write_stamps(project)
    subprocess.run(["git", "init", "-q"], check=True)
    command = ["dvc", "repro", "--single-item", "plan/dvc.yaml:train@tiny"]

    def queued() -> set[str]:
        """Numbers and names of the jobs in the queue."""
        shown = subprocess.run(["squeue", "-h", "-o", "%F %j"], capture_output=True, text=True, check=True)
        return set(shown.stdout.splitlines())

    def weights() -> dict:
        return {path: path.stat().st_mtime_ns for path in runs.glob("*/*/seed0/weights.safetensors")}

    stage = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    waited(weights, "the first run", 120)
    stage.kill()
    stage.wait()
    (job,) = queued()
    number, name = job.split()
    assert name == "stemrepro-tiny"
    before = weights()
    assert len(before) < len(addresses)
    again = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert again.returncode == 0, again.stderr
    assert f"waiting for stemrepro-tiny, which is in the queue (job {number})" in again.stderr
    after = weights()
    assert len(after) == len(addresses)
    assert before.items() <= after.items()
    status = subprocess.run(["dvc", "status", command[-1]], capture_output=True, text=True)
    assert "up to date" in status.stdout, status
    logs = [path.name for path in tmp_path.glob("stemrepro-*.log")]
    assert sorted(logs) == [f"stemrepro-tiny-{number}_{share}.log" for share in (1, 2)]


def test_a_run_of_two_nodes_goes_on_after_its_time(make_project, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    make_project(
        parallel={"strategy": "fsdp", "devices": 1, "nodes": 2},
        launcher=LAUNCHER.format(2, "1"),
    )
    folder = tmp_path / "runs/tiny/main/stem-third/seed0"
    command = subprocess.Popen(["stemrepro", "train", "stem-third", "--scale", "tiny", "--untracked"])
    waited(lambda: newest(folder / "resume"), "the first checkpoint", 120)
    job = subprocess.run(["squeue", "-h", "-o", "%F"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["scancel", "--signal=TERM", "--batch", job], check=True)  # as when its time is up
    waited(lambda: states(job) == "PD", "the requeue", 120)
    step = newest(folder / "resume").name
    assert command.wait(300) == 0
    about = json.loads((folder / "provenance.json").read_text())
    assert about["resumed_from"] == step
    assert about["parallel"]["nodes"] == 2
