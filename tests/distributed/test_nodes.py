"""A run of two machines against one process: two agents on this host, each with two ranks.

Two nodes of a real Slurm: tests/cluster.
"""

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.parallel import Parallel
from stemrepro.training import launch, ranks
from stemrepro.training.launch import PORTS, meeting, train_on_devices
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.distributed.test_training import at_step, killed_once, same

PARALLEL = Parallel(strategy="tables", devices=2, nodes=2, replicate=2, table_ranks=2)
SLURM = {
    "SLURM_NNODES": "2", "SLURM_NODELIST": "127.0.0.[1-2]", "SLURMD_NODENAME": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip


def agent_killed(agent, run, replace, report):
    """Trains; the agent of these ranks is killed."""
    at_step(lambda: ranks.rank() in (1, 3) and os.kill(agent, signal.SIGKILL))
    train(run, report, replace)


def node(number, runs, killed):
    """Be the command of a machine; its agent may be killed in mid-run, or once the rank 1."""
    os.environ |= SLURM | {"SLURM_NODEID": str(number), "SLURM_JOB_ID": str(os.getppid())}
    if killed == "agent":
        launch._train = partial(agent_killed, os.getpid())
    elif killed == "rank":
        launch._train = killed_once
    try:
        for run in runs:
            train_on_devices(run, quiet)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


@pytest.fixture
def started(deadline):
    """started(runs, "agent", None) -> the commands of both machines, and what is killed of each."""
    context, every = multiprocessing.get_context("spawn"), []

    def start(runs, *killed):
        commands = [context.Process(target=node, args=(number, runs, kill)) for number, kill in enumerate(killed)]
        for command in commands:
            command.start()
        every.extend(commands)
        return commands

    yield start
    for command in every:
        command.kill()


def ended(commands):
    """Wait for commands; return their exit codes."""
    for command in commands:
        command.join()
    return [command.exitcode for command in commands]


@pytest.fixture
def make(runs_in, tiny, tmp_path):
    """make("dense") -> a run on one device, and the same on two nodes."""
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update={"micro_batch": 1})})

    def made(arm):
        one, two = (runs_in(tmp_path / name)(arm, scale=scale) for name in ("one", "two"))
        return one, replace(two, parallel=PARALLEL)

    return made


def about(run):
    return json.loads((run.folder / "provenance.json").read_text())


@pytest.mark.slow
def test_runs_of_two_nodes_are_those_of_one_process_also_where_a_rank_is_killed(make, started, capfd):
    """In each of two runs that the commands train one after the other: all ranks of both are started again."""
    pairs = [make("stem-half"), make("dense")]
    assert ended(started([run for _, run in pairs], "rank", "rank")) == [0, 0]
    assert capfd.readouterr().err.count("all ranks are started again") == 4
    for one, run in pairs:
        assert about(run)["resumed_from"] == "step000000005.ckpt"
        assert about(run)["parallel"] == PARALLEL.model_dump()
        train(one, quiet)
        same(run, one)


@pytest.mark.slow
def test_a_run_resumes_after_the_kill_of_an_agent(make, started, capfd):
    """The agent that is left waits for the other, and is stopped; both are started again."""
    one, run = make("stem-half")
    left, gone = started([run], None, "agent")
    assert ended([gone]) == [-signal.SIGKILL]
    said = ""
    while "started again" not in said:
        time.sleep(0.1)
        said += capfd.readouterr().err
    left.terminate()
    left.join()
    assert ended(started([run], None, None)) == [0, 0]
    assert about(run)["resumed_from"] == "step000000005.ckpt"
    train(one, quiet)
    same(run, one)


@pytest.mark.parametrize("found", [{}, {"SLURM_NNODES": "3", "SLURM_NODEID": "0", "SLURM_JOB_ID": "7"}])
def test_other_numbers_of_nodes_are_refused(found, monkeypatch):
    monkeypatch.delenv("SLURM_NNODES", raising=False)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="'srun --nodes=2 --ntasks-per-node=1 stemrepro train"):
        meeting(2)


def test_a_port_that_another_program_has_is_a_sentence(make_run, monkeypatch):
    with socket.socket() as other:
        for port in PORTS:
            with suppress(OSError):
                other.bind(("", port))
                break
        other.listen()
        for name, value in (SLURM | {"SLURM_NODEID": "0", "SLURM_JOB_ID": str(port - PORTS.start)}).items():
            monkeypatch.setenv(name, value)
        run = replace(make_run("dense"), parallel=Parallel(strategy="ddp", devices=1, nodes=2))
        with pytest.raises(UserError, match=f"the 2 nodes of a run didn't meet .*{port}"):
            train_on_devices(run, quiet)
