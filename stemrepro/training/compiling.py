"""torch.compile, once per process for all runs in it, with a cache that processors don't share."""

import os
import sys
from collections.abc import Callable
from functools import cache

import torch

from stemrepro.common.files import private_folder
from stemrepro.model.transformer import attend_inside, documents_of, rotary_angles

MOST_GRAPHS = 256
"""Graphs of one function that a worker keeps; by default torch stops compiling it after 8."""


@cache
def compiled(function: Callable, dynamic: bool = False) -> Callable:
    """Return `function`, compiled for the shapes of each call, or once for all shapes where they are `dynamic`.

    Code that turns dynamic by itself would round differently depending on what ran before.
    """
    # The compiler looks through a cache, and would make them anew in every step. This call imports the compiler, which
    # takes a second: a mark at the function would cost it wherever a model is only read.
    torch.compiler.assume_constant_result(rotary_angles)
    for apart in (documents_of, attend_inside):  # other lengths in every batch
        setattr(sys.modules[apart.__module__], apart.__name__, torch.compiler.disable(apart))
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = MOST_GRAPHS
    return torch.compile(function, dynamic=dynamic)


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
