"""SIGKILL at any moment, resume, and the same bytes as if nothing had happened. Real processes, really killed."""

import os
import random
import signal
from dataclasses import replace

import pytest
import torch

from benchmarks.kills import finish, kill_once, last_step, look, start
from stemrepro.training.checkpoint import AtomicCheckpointIO, checkpoint_path
from tests.conftest import written

pytestmark = pytest.mark.slow

WRITES = {
    "while its settings are written": 1,
    "while a checkpoint is written": 4,
    "between a checkpoint and its hash": 5,
    "while the weights are written": 12,
}
"""Which of a run's file writes it dies at: config, snapshot at 3, metrics, checkpoint and hash at 5, ..., weights."""


def kill_after(run, step, threads=1):
    """Starts or resumes a run and kills it after a step."""
    process, pipe = start(run, threads, hold_after=step)
    assert step in iter(pipe.recv, None)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not run.weights.exists()


def other(run, name):
    return replace(run, folder=run.folder.parent / name)


@pytest.fixture(scope="module")
def wholes():
    """Uninterrupted runs by number of threads."""
    return {}


def whole(run, threads, wholes):
    if threads not in wholes:
        finish(run, threads)
        wholes[threads] = written(run)
    return wholes[threads]


@pytest.mark.parametrize("threads", [1, 2])
def test_killed_at_a_random_step(make_run, wholes, threads):
    run = make_run("stem-full", seed=1)
    expected = whole(run, threads, wholes)
    killed, stop = other(run, "killed"), random.randint(1, 11)
    kill_after(killed, stop, threads)
    unreadable, _, good = look(killed.folder / "resume")
    assert unreadable == 0
    assert good >= stop // 5 * 5
    finish(killed, threads)
    assert written(killed) == expected, f"killed after step {stop}"


@pytest.mark.parametrize("moment", WRITES)
def test_killed_while_writing(make_run, wholes, moment):
    run = make_run("stem-full", seed=1)
    expected = whole(run, 1, wholes)
    killed = other(run, "killed")
    process, pipe = start(killed, die_at_write=WRITES[moment] - 1)
    died = last_step(pipe)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not killed.weights.exists()
    assert died == {1: 0, 3: 4, 4: 4, 5: 4, 12: 12}[WRITES[moment]]
    finish(killed)
    assert written(killed) == expected


def test_killed_between_a_save_and_a_validation(make_run, wholes):
    """Step 5 saves, step 8 validates."""
    run = make_run("stem-full", seed=1)
    expected = whole(run, 1, wholes)
    killed = other(run, "killed")
    kill_after(killed, 6)
    finish(killed)
    assert written(killed) == expected


def tensors(value, prefix=""):
    """Every leaf of a checkpoint by its path."""
    if isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from tensors(inner, f"{prefix}/{key}")
    else:
        yield prefix, value


def test_the_state_behind_the_weights_is_the_same_too(make_run):
    """Table moments, random state, place in the data and metrics rows, in the checkpoint at step 10."""

    def checkpoint(run, *stops):
        for stop in stops:
            kill_after(run, stop)
        return dict(tensors(AtomicCheckpointIO().load_checkpoint(checkpoint_path(run.folder / "resume", 10))))

    run = make_run("stem-full", seed=1)
    expected, outcome = checkpoint(run, 11), checkpoint(other(run, "killed"), 3, 7, 11)
    assert expected.keys() == outcome.keys()
    assert sum("exp_avg_sq" in key for key in expected) == sum(1 for _ in run_parameters(run))
    for name in ("/rng_state", "/global_step", "/callbacks/Recorder/rows/9/loss"):
        assert name in expected
    for key, value in expected.items():
        same = value.equal(outcome[key]) if isinstance(value, torch.Tensor) else value == outcome[key]
        assert same, key


def run_parameters(run):
    from stemrepro.model.transformer import build

    return build(run.model, 0).parameters()


def test_kill_after_kill(make_run, wholes):
    """The loop of benchmarks/kills.py, four kills long."""
    run = make_run("stem-full", seed=1)
    expected, rng, seen = whole(run, 1, wholes), random.Random(), []
    killed = other(run, "killed")
    for number in range(4):
        outcome = kill_once(killed, number % 2 == 1, rng)
        if outcome is None:
            break
        seen.append(outcome)
        assert outcome["unreadable"] == 0, seen
        assert outcome["lost"] <= run.training.save_every, seen
    finish(killed)
    assert written(killed) == expected
