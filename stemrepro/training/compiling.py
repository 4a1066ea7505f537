"""torch.compile, once a process for all runs in it, with a cache that processors don't share."""

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
"""Graphs of one function that a worker keeps; torch gives up after 8 and goes on without compiling."""


@cache
def compiled(function: Callable) -> Callable:
    """`function`, compiled for the shapes of each call: shapes that vary would make roundings depend on what ran before."""
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = MOST_GRAPHS
    return torch.compile(function, dynamic=False)


def own_folder() -> Path:
    """Below TMPDIR a folder for compiled code, in which nobody else can put any: torch would load and run it.

    Its name is known, so that another user may have made it first, or a link; then a new one is made.
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
    """Can this machine compile for `device`? On a CPU that takes a C++ compiler and Python's headers."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        place = f"{torch.__version__}-{torch.backends.cpu.get_cpu_capability()}".replace(" ", "-")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own_folder() / place)
    try:
        torch.compile(torch.sin)(torch.ones(8, device=device))
    except Exception:  # whatever is missing, a run goes on without
        return False
    return True
