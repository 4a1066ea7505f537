"""A run of two machines against one process: two agents on this host, each with two ranks."""

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver

import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.workers import fork_server
from stemrepro.config.parallel import Parallel
from stemrepro.training import launch
from stemrepro.training.launch import PORTS, meeting, train_on_devices
from stemrepro.training.train import train
from tests.conftest import quiet
from tests.distributed.test_training import same
from tests.distributed.what_ranks_do import SLURM, agent_killed, be_rank, killed_once

PARALLEL = Parallel(strategy="tables", devices=2, nodes=2, replicate=2, table_ranks=2)


def node(number, job, server, said, runs):
    """Be the command of a machine, which trains runs one after the other; in each once what it names is killed.

    Its ranks come from the fork server of the tests, which has imported what they need.
    """
    forkserver._forkserver._forkserver_address = server
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None
    launch._be_rank = be_rank
    os.environ |= SLURM | {"SLURM_NODEID": str(number), "SLURM_JOB_ID": str(job)}
    sys.stderr = said.open("a", buffering=1)
    trained = {"rank": killed_once, "agent": partial(agent_killed, number and os.getpid()), None: launch._train}
    try:
        for run, killed in runs:
            launch._train = trained[killed]
            train_on_devices(run, quiet)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


@pytest.fixture
def said(tmp_path):
    """The file of what both machines say."""
    return tmp_path / "said"


@pytest.fixture
def started(deadline, said):
    """started((run, "agent"), (other, None)) -> the commands of both machines, and what is killed in each run."""
    context, every = fork_server(1, "stemrepro.training.launch", "stemrepro.training.fork_server"), []
    forkserver.ensure_running()

    def start(*runs):
        about = os.getpid(), forkserver._forkserver._forkserver_address, said, runs
        commands = [context.Process(target=node, args=(number, *about)) for number in range(2)]
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
def test_runs_of_two_nodes_are_those_of_one_process_whatever_is_killed(make, started, said):
    """Of two runs that the commands train one after the other.

    In the first a rank is killed: all ranks of both nodes are started again. In the second an agent is killed:
    the one that is left waits for it, and is stopped; both commands are started again.
    """
    pairs = [make("stem-half"), make("dense")]
    first, second = (run for _, run in pairs)
    left, gone = started((first, "rank"), (second, "agent"))
    assert ended([gone]) == [-signal.SIGKILL]
    while said.read_text().count("all ranks are started again") < 3:
        time.sleep(0.1)
    left.terminate()
    left.join()
    assert ended(started((first, None), (second, None))) == [0, 0]
    assert said.read_text().count("all ranks are started again") == 3
    for one, run in pairs:
        assert about(run)["resumed_from"] == "step000000005.ckpt"
        assert about(run)["parallel"] == PARALLEL.model_dump()
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
