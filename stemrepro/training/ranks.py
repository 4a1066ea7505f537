"""The processes that train a run together: who is first, what all agree on, and how all leave at the same step.

One process that trains alone is the first and only rank. Nothing here then does more than return its argument.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from stemrepro.common.errors import UserError
from stemrepro.common.stopping import STOPS
from stemrepro.config.parallel import Parallel

Result = TypeVar("Result")
LEAVING = (*STOPS, signal.SIGUSR1)
"""Signals to a rank after which all ranks leave; Slurm announces the end of a job's time with SIGUSR1."""
_asked: list[int] = []


class Left(Exception):
    """All ranks have left after the step `step`, which has a checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def world() -> int:
    """Count the ranks; 1 without a process group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return this process's number; 0 is the first, which alone writes."""
    return dist.get_rank() if dist.is_initialized() else 0


def reader(parallel: Parallel | None) -> tuple[int, int]:
    """Return (number of this rank's reader, readers): ranks that share layers read the same micro-batches."""
    return (rank() // parallel.tensor, parallel.readers) if parallel and world() > 1 else (0, 1)


@contextmanager
def joined(accelerator: str) -> Iterator[torch.device]:
    """Be one of the ranks that the environment names, and yield its device."""
    if accelerator == "gpu":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        if os.environ["GROUP_WORLD_SIZE"] == "1":  # one machine
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # or the host's name is looked up
        dist.init_process_group("gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def barrier() -> None:
    """Wait for all ranks."""
    if world() > 1:
        dist.barrier()


def from_first(function: Callable[[], Result]) -> Result:
    """Call a function on the first rank alone and return its result on all.

    Raises:
        UserError: the first rank's, on all.
    """
    if world() == 1:
        return function()
    answer: list = [None, None]
    if rank() == 0:
        try:
            answer[0] = function()
        except UserError as error:
            answer[1] = error
    dist.broadcast_object_list(answer)
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


def summed(values: Tensor) -> Tensor:
    """Return the sum over ranks of a tensor of any shape, in place."""
    if world() > 1:
        dist.all_reduce(values)
    return values


def means(values: Sequence[float], device: torch.device) -> list[float]:
    """Return the mean over ranks of each number, in one reduction."""
    if world() == 1:
        return list(values)
    return (summed(torch.tensor(values, dtype=torch.float64, device=device)) / world()).tolist()


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be sharded; every rank must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gathered(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return whole tensors in the memory of the first rank, and none on others; every rank must call it."""
    held = ((name, whole(tensor.detach())) for name, tensor in state.items())
    return {name: tensor.cpu().contiguous() for name, tensor in held if rank() == 0}


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor that may be sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def hear_leaving() -> None:
    """From here on a signal to this rank ends no process: `leaving` tells of it.

    Lightning's own handlers broadcast or save where the signal finds them, in the middle of another collective.
    """
    for number in LEAVING:
        signal.signal(number, lambda number, _: _asked.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEAVING)


def leaving() -> bool:
    """Tell whether this rank got a signal to leave."""
    return bool(_asked)
