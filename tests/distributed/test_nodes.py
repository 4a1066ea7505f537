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
from tests.distributed.test_training import at_step, same

PARALLEL = Parallel(strategy="tables", devices=2, nodes=2, replicate=2, table_ranks=2)
SLURM = {
    "SLURM_NNODES": "2", "SLURM_NODELIST": "127.0.0.[1-2]", "SLURMD_NODENAME": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip


def agent_killed(agent, *arguments):
    """Trains; the agent of these ranks is killed."""
    at_step(lambda: ranks.rank() in (1, 3) and os.kill(agent, signal.SIGKILL))
    launch.train(*arguments[:1], arguments[2])


def node(number, run, killed):
    """Be the command of a machine, whose agent may be killed in mid-run."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= SLURM | {"SLURM_NODEID": str(number), "SLURM_JOB_ID": str(os.getppid())}
    if killed:
        launch._train = partial(agent_killed, os.getpid())
    try:
        train_on_devices(run, quiet)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def nodes(run, killed=None):
    """Start the commands of both machines."""
    context = multiprocessing.get_context("spawn")
    commands = [context.Process(target=node, args=(number, run, number == killed)) for number in range(2)]
    for command in commands:
        command.start()
    return commands


def seconds(text):
    for _ in range(600):
        if text():
            return
        time.sleep(0.1)
    raise TimeoutError


@pytest.mark.slow
@pytest.mark.usefixtures("deadline")
def test_a_run_of_two_nodes_is_that_of_one_process_also_after_the_kill_of_an_agent(runs_in, tiny, tmp_path, capfd):
    """The agent that is left waits for the other and is stopped; both are started again."""
    scale = tiny.model_copy(update={"training": tiny.training.model_copy(update={"micro_batch": 1})})
    one, run = (runs_in(tmp_path / name)("stem-half", scale=scale) for name in ("one", "two"))
    train(one, quiet)
    run = replace(run, parallel=PARALLEL)
    left, gone = nodes(run, killed=1)
    gone.join()
    assert gone.exitcode == -signal.SIGKILL
    said = []
    seconds(lambda: said.append(capfd.readouterr().err) or "started again" in "".join(said))
    left.terminate()
    left.join()
    both = nodes(run)
    for command in both:
        command.join()
    assert [command.exitcode for command in both] == [0, 0]
    about = json.loads((run.folder / "provenance.json").read_text())
    assert about["resumed_from"] == "step000000005.ckpt"
    assert about["parallel"] == PARALLEL.model_dump()
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
