"""torch.compile, once a process for all runs in it, with a cache that processors don't share."""

import os
import tempfile
from collections.abc import Callable
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


@cache
def compiler_works(device: str) -> bool:
    """Can this machine compile for `device`? On a CPU that takes a C++ compiler and Python's headers."""
    user = (
        os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    )  # a container's user may have no name
    place = f"stemrepro-{user}/{torch.__version__}-{torch.backends.cpu.get_cpu_capability()}".replace(" ", "-")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / place))
    try:
        torch.compile(torch.sin)(torch.ones(8, device=device))
    except Exception:  # whatever is missing, a run goes on without
        return False
    return True
