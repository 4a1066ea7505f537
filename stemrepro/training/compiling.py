"""torch.compile, once per process for all runs in it, with a cache that processors don't share."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

MOST_GRAPHS = 256
"""Graphs of one function that a worker keeps; by default torch stops compiling it after 8."""


@cache
def compiled(function: Callable, dynamic: bool = False) -> Callable:
    """Return `function`, compiled for the shapes of each call, or once for all shapes where they are `dynamic`.

    Code that turns dynamic by itself would round differently depending on what ran before.
    """
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = MOST_GRAPHS
    return torch.compile(function, dynamic=dynamic)


def private_folder() -> Path:
    """Return a folder below TMPDIR for compiled code, in which nobody else can put any: torch would load and run it.

    Its name can be guessed, so that another user may have made it first, or a link. Then a new one is made.
    """
    place = Path(tempfile.gettempdir()) / f"stemrepro-{os.getuid()}"  # a container's user may have no name
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    about = place.lstat()
    if (
        stat.S_ISDIR(about.st_mode)
        and about.st_uid == os.getuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        return place
    other = Path(tempfile.mkdtemp(prefix="stemrepro-"))
    print(
        f"stemrepro: {place} isn't a folder that this user alone can write to; compiled code goes to {other}",
        file=sys.stderr,
    )
    return other


@cache
def compiler_works(device: str) -> bool:
    """Tell whether this machine can compile for `device`; a CPU needs a C++ compiler and Python's headers."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        place = f"{torch.__version__}-{torch.backends.cpu.get_cpu_capability()}".replace(" ", "-")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(private_folder() / place)
    try:
        torch.compile(torch.sin)(torch.ones(8, device=device))
    except Exception:  # whatever is missing, the run is trained without
        return False
    return True
