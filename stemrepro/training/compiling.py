"""torch.compile, once per process for all runs in it, with a cache that processors don't share."""

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from stemrepro.common import mkl_avx512
from stemrepro.common.files import private_folder
from stemrepro.model.block import attend_inside, documents_of, rotary_angles
from stemrepro.model.ffn.experts import Experts
from stemrepro.training.run import Run

EXPERTS_FORWARD = Experts.forward
MOST_GRAPHS = 256
"""Graphs of one function that a worker keeps; by default torch stops compiling it after 8."""


@cache
def compiled(function: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
    """Return `function`, compiled for the shapes of each call, or once for all shapes where they are `dynamic`.

    Code that turns dynamic by itself would round differently depending on what ran before.
    """
    # The compiler looks through a cache, and would make them anew in every step. This call imports the compiler, which
    # takes a second: a mark at the function would cost it wherever a model is only read.
    torch.compiler.assume_constant_result(rotary_angles)
    for apart in (documents_of, attend_inside):  # other lengths in every batch
        setattr(sys.modules[apart.__module__], apart.__name__, torch.compiler.disable(apart))
    Experts.forward = torch.compiler.disable(EXPERTS_FORWARD)  # type: ignore[method-assign]  # likewise their parts
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


def compiles(run: Run) -> bool:
    """Say what this machine can't do for a run, and return whether it is compiled."""
    training = run.training
    works = training.compile and compiler_works("cuda" if training.accelerator == "gpu" else "cpu")
    if training.compile and not works:
        print(f"stemrepro: {run}: there is no working compiler; it is trained without", file=sys.stderr)
    if training.mkl_avx512 and not mkl_avx512.in_force():
        print(f"stemrepro: {run}: MKL can't be asked for AVX-512; it is trained without", file=sys.stderr)
    return works
