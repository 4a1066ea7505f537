"""What tests have ranks do, in a file that imports little: each rank imports it anew."""

import os
import signal
from functools import cache, partial

import torch

from stemrepro.training import ranks, sharding
from stemrepro.training import train as train_module
from stemrepro.training.callbacks import Recorder
from stemrepro.training.launch import _be_rank
from stemrepro.training.train import train

STEP = 7
"""At which runs are interrupted; their last checkpoint is that of step 5."""
SLURM = {
    "SLURM_NNODES": "2", "SLURM_NODELIST": "127.0.0.[1-2]", "SLURMD_NODENAME": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip
"""What Slurm tells the first of two machines that are this one; GLOO's is for ranks."""


def at_step(action):
    """Has this rank do something after the step STEP, before its row is made."""
    end_of_batch = Recorder.on_train_batch_end

    def acting(self, trainer, *arguments):
        if trainer.global_step == STEP:
            action()
        end_of_batch(self, trainer, *arguments)

    Recorder.on_train_batch_end = acting


def killed():
    """Stands for the kill of a single process."""
    raise InterruptedError


def signalled(run, number, which, report):
    """Trains; a signal comes to one rank."""
    if ranks.rank() == which:
        at_step(lambda: os.kill(os.getpid(), number))
    train(run, report)


def killed_once(run, replace, report):
    """Trains; the first time the last rank is killed."""
    marker = run.folder.with_name("killed")
    if ranks.rank() == 1 and not marker.exists():
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        at_step(lambda: os.kill(os.getpid(), signal.SIGKILL))
    train(run, report, replace)


def compiled_eagerly(run, report):
    """Trains; the compiler captures blocks, and makes no C++ of them, which takes long."""
    sharding.compiled = cache(partial(torch.compile, backend="eager", dynamic=False))
    train_module.compiler_works = lambda device: True
    train(run, report)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def agent_killed(agent, run, replace, report):
    """Trains; the agent of these ranks is killed, if they have this one."""
    at_step(lambda: agent and os.kill(agent, signal.SIGKILL))
    train(run, report, replace)


def be_rank(*arguments):
    """Be a rank of a machine that Slurm has given."""
    os.environ |= SLURM
    return _be_rank(*arguments)
