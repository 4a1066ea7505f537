"""The job files of slurm/, run by bash as Slurm runs them: its variables, its signal, and stand-ins for commands."""

import os
import re
import signal
import subprocess
import time
from dataclasses import replace

import pytest

from stemrepro.pipeline.runs import share_of
from tests.conftest import ROOT

TRAIN = ("bash", ROOT / "slurm/train.sbatch", "stemrepro", "train", "--scale", "tiny", "--untracked")
SCORE = ("bash", ROOT / "slurm/score.sbatch", "losses", "benchmarks")
WAITS = "trap 'kill $!; exit {}' TERM; sleep 60 & touch started; wait"


@pytest.fixture
def job(tmp_path, monkeypatch):
    """job(stemrepro=..., srun=...) makes each command a script in a job's environment; said() has their calls."""
    monkeypatch.chdir(tmp_path)
    bin = tmp_path / "bin"
    bin.mkdir()
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    array = re.search(r"#SBATCH --array=1-(\d+)", (ROOT / "slurm/train.sbatch").read_text())[1]
    given = {"ARRAY_JOB_ID": "7", "ARRAY_TASK_ID": "2", "ARRAY_TASK_COUNT": array, "NTASKS": "1"}
    for name, value in given.items():
        monkeypatch.setenv(f"SLURM_{name}", value)

    def commands(**scripts):
        for name, script in ({"scontrol": "", "scancel": ""} | scripts).items():
            (bin / name).write_text(f'#!/usr/bin/env bash\necho {name} "$@" >> said\n{script}\n')
            (bin / name).chmod(0o755)

    return commands


def said():
    return [line.rstrip("\n") for line in open("said")]


def stopped(wait):
    """Start a task, send SIGTERM to its shell once its command runs, and return its exit code."""
    task = subprocess.Popen(TRAIN)
    while not os.path.exists("started"):
        assert task.poll() is None
        time.sleep(0.01)
    task.send_signal(signal.SIGTERM)
    return task.wait(wait)


def test_the_tasks_of_the_array_deal_all_runs_out_once(job, monkeypatch, make_run, tmp_path):
    job(stemrepro="")
    count = int(os.environ["SLURM_ARRAY_TASK_COUNT"])
    for number in range(1, count + 1):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        subprocess.run(TRAIN, check=True)
    asked = [line.split() for line in said()]
    assert all(words[:-1] == [*TRAIN[2:], "--shard"] for words in asked)
    every = [replace(make_run("dense"), seed=seed, folder=tmp_path / f"{seed}") for seed in range(9)]
    shares = [share_of(every, words[-1]) for words in asked]
    assert sorted(run.seed for share in shares for run in share) == list(range(9))


def test_a_task_whose_time_is_up_goes_back_into_the_queue(job):
    job(stemrepro=WAITS.format(143))
    assert stopped(30) == 0
    assert said()[1:] == ["scontrol requeue 7_2"]


@pytest.mark.parametrize("code", [0, 1])
def test_a_task_that_ends_in_another_way_stays_out_of_the_queue(job, code):
    job(stemrepro=WAITS.format(code))
    assert stopped(30) == code
    job(stemrepro="exit 143")
    assert subprocess.run(TRAIN).returncode == 143  # no signal came
    assert not [line for line in said() if line.startswith("scontrol")]


def test_a_job_of_two_tasks_has_srun_start_the_command(job, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    job(srun=f"echo $$ > pid; {WAITS.format(143)}", scancel="kill -TERM $(cat pid)")
    assert stopped(30) == 0
    srun, scancel, scontrol = said()
    assert srun.startswith("srun --kill-on-bad-exit stemrepro train")
    assert [scancel, scontrol] == ["scancel --signal=TERM 7_2", "scontrol requeue 7_2"]


def test_kinds_are_scored_in_turn_until_one_fails(job, monkeypatch):
    monkeypatch.setenv("SCALE", "tiny")
    job(stemrepro='[ "$5" = losses ]')
    assert subprocess.run([*SCORE, "geometry"]).returncode == 1
    assert said() == [f"stemrepro score --scale tiny --kind {part}" for part in ("losses", "benchmarks")]
    monkeypatch.delenv("SCALE")
    assert "the scale to score" in subprocess.run(SCORE, capture_output=True, text=True).stderr


@pytest.mark.parametrize("name", ["train", "score"])
def test_gpus_are_a_line_to_be_uncommented_among_the_directives(name):
    """Slurm reads directives up to the first command, and takes ## for a comment."""
    head = (ROOT / f"slurm/{name}.sbatch").read_text().partition("#SBATCH --output")[0].splitlines()
    assert "##SBATCH --gpus-per-node=1" in head
