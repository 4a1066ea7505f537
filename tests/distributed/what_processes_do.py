"""What torchrun or srun starts in tests: train runs one after another, some of them interrupted or killed."""

import os
import pickle
import signal
import sys
from functools import cache, partial
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from stemrepro.training import compiling, devices
from stemrepro.training.callbacks import Recorder
from stemrepro.training.train import train
from tests.conftest import quiet

STEP = 7
"""At which runs are interrupted; their last checkpoint is that of step 5."""


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    """Stand for a kill of all processes."""
    raise InterruptedError


def at_step(action):
    """Do something after the step STEP, before its row is made."""
    end_of_batch = Recorder.on_train_batch_end

    def acting(self, trainer, *arguments):
        if trainer.global_step == STEP:
            action()
        end_of_batch(self, trainer, *arguments)

    Recorder.on_train_batch_end = acting


def once(marker: Path, process: int) -> bool:
    """Tell in one of the processes whether this is the first time."""
    new = not marker.exists()
    torch.distributed.barrier()
    if torch.distributed.get_rank() != process or not new:
        return False
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return True


def act(run, what: str) -> None:
    """Train a run; `what` happens on the way: "", "interrupted", "killed", "killed while writing", "compiled"."""
    before, save = Recorder.on_train_batch_end, dcp.save
    devices.join(run)
    if what == "interrupted":
        at_step(interrupt)
    elif what == "killed" and once(run.folder.with_name("killed"), 1):
        at_step(kill)
    elif what == "killed while writing" and once(run.folder.with_name("killed"), 0):
        dcp.save = lambda *args, **more: (save(*args, **more), kill())
    elif what == "compiled":  # the compiler captures blocks, and makes no C++ of them, which takes long
        devices.compiled = cache(partial(torch.compile, backend="eager", dynamic=False))
        compiling.compiler_works = lambda device: True
    try:
        train(run, quiet)
    except InterruptedError:
        pass
    finally:
        Recorder.on_train_batch_end, dcp.save = before, save
    if what == "compiled":
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


if __name__ == "__main__":
    for each in pickle.loads(Path(sys.argv[1]).read_bytes()):
        act(*each)
