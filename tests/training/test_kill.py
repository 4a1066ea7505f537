"""SIGKILL at any moment, resume, and the same bytes as if nothing had happened. Real processes, really killed.

As many kills in a row as you like: KILLS=50 python -m pytest -s -p no:xdist tests/training/test_kill.py -k in_a_row
"""

import multiprocessing
import os
import random
import shutil
import signal
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from stemrepro.common.workers import fork_server
from stemrepro.training.checkpoint import AtomicCheckpointIO, checkpoint_path, newest
from stemrepro.training.run import Run
from tests.conftest import written

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("KILLS", "4"))

WRITES = {
    "while its settings are written": 1,
    "while a checkpoint is written": 4,
    "between a checkpoint and its hash": 5,
    "while the weights are written": 12,
}
"""Which of a run's file writes it dies at: config, snapshot at 3, metrics, checkpoint and hash at 5, ..., weights."""


def victim(run: Run, pipe: Connection, threads: int, die_at_write: int | None, hold_after: int | None) -> None:
    """Train and report every step; die at the nth file write, before its rename, or wait after a step to be killed."""
    from stemrepro.training import callbacks
    from stemrepro.training.train import train

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    callbacks.time = type("Clock", (), {"monotonic": iter(range(10**9)).__next__})  # so that every step is reported
    rename, writes = os.replace, count()

    def deadly(source: str, target: str) -> None:
        if next(writes) == die_at_write:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    def report(step: int, *_: float) -> None:
        pipe.send(step)
        if step == hold_after:
            signal.pause()

    os.replace = deadly
    train(run, report)


def start(
    run: Run, threads: int = 1, die_at_write: int | None = None, hold_after: int | None = None
) -> tuple[multiprocessing.Process, Connection]:
    """Start a victim; its steps come through the pipe."""
    context = fork_server(threads, "stemrepro.training.fork_server")
    parent_end, child_end = context.Pipe(duplex=False)
    process = context.Process(target=victim, args=(run, child_end, threads, die_at_write, hold_after), daemon=True)
    process.start()
    child_end.close()
    return process, parent_end


def last_step(pipe: Connection, step: int = 0) -> int:
    """Wait for a process's end -> the last step that it reported."""
    with suppress(EOFError, ConnectionResetError):
        while True:
            step = pipe.recv()
    return step


def finish(run: Run, threads: int = 1) -> None:
    """Train a run to its end."""
    process, pipe = start(run, threads)
    last_step(pipe)
    process.join()
    assert process.exitcode == 0, f"{run.folder} did not finish"


def good_step(folder: Path) -> int:
    """The newest good checkpoint's step, 0 for none; all that have their hash can be read."""
    for hashed in folder.glob("step*.ckpt.sha256"):
        AtomicCheckpointIO().load_checkpoint(hashed.with_suffix(""))
    good = newest(folder)
    return int(good.stem.removeprefix("step")) if good else 0


def is_saving(folder: Path) -> bool:
    """Tell whether a checkpoint is being written; a run that comes to its end meanwhile removes the folder."""
    with suppress(FileNotFoundError):
        return any(folder.glob(".step*"))
    return False


def kill_once(run: Run, during_save: bool, rng: random.Random) -> int | None:
    """Start or resume the run, kill it, and return the steps that were lost; None when it finished first."""
    folder, (process, pipe) = run.folder / "resume", start(run)
    died = good_step(folder)
    stop = rng.randint(died + 1, run.training.steps - 1)
    with suppress(EOFError, ConnectionResetError):
        while not is_saving(folder) if during_save else died < stop:
            if not during_save or pipe.poll(0):
                died = pipe.recv()
    if not during_save:
        time.sleep(rng.random() * 0.02)
    process.kill()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        return None
    died = last_step(pipe, died) + during_save  # a step is reported after the save that follows it
    return max(0, died - good_step(folder))


def files(run: Run) -> dict[str, bytes]:
    """Return what a run's folder holds by name, but for when and where it was made."""
    return {path.name: path.read_bytes() for path in run.folder.iterdir() if path.name != "provenance.json"}


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


def test_killed_at_a_random_step_of_two_threads(make_run, wholes):
    run = make_run("stem-full", seed=1)
    expected = whole(run, 2, wholes)
    killed, stop = other(run, "killed"), random.randint(1, 11)
    kill_after(killed, stop, threads=2)
    assert good_step(killed.folder / "resume") >= stop // 5 * 5
    finish(killed, threads=2)
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


def test_kills_in_a_row(make_run, wholes):
    """Every second one while a checkpoint is written."""
    run = make_run("stem-full", seed=1)
    expected, rng, lost, ends = whole(run, 1, wholes), random.Random(), [], 1
    killed = other(run, "killed")
    for number in range(KILLS):
        steps = kill_once(killed, number % 2 == 1, rng)
        if steps is None:  # it came to its end before
            assert files(killed) == expected
            shutil.rmtree(killed.folder)
            ends += 1
        else:
            lost.append(steps)
    finish(killed)
    assert files(killed) == expected
    assert max(lost, default=0) <= run.training.save_every
    print(f"{len(lost)} kills, at most {max(lost, default=0)} steps lost; all {ends} runs that ended are the same")
