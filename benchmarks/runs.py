"""Runs and steps for measurements: an arm at a scale, in a given folder, in a process like a worker."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from stemrepro.common.workers import ENVIRONMENT
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Scale, Variant
from stemrepro.data.integrity import verified_hash
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import Run


def as_a_worker() -> None:
    """Start this very command anew with the environment of workers, unless it has it.

    glibc reads its part of the environment when a process starts.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, sys.orig_argv, os.environ | ENVIRONMENT)


def run_at(catalog: Catalog, scale: Scale, arm: str, blocks: Path, folder: Path, seed: int = 0) -> Run:
    """Return seed `seed` of an arm at a scale, on some token blocks."""
    model, training = run_settings(Address(MAIN, arm), catalog.arms[arm], Variant(), scale)
    return Run(Address(MAIN, arm), seed, model, training, folder, scale.data, blocks, verified_hash(blocks))


def own_step(module: LanguageModule) -> Callable[[torch.Tensor], float]:
    """Return a step as in training on a batch [sequences, length + 1], which returns its seconds."""
    optimizer = module.configure_optimizers()["optimizer"]

    def take(batch: torch.Tensor) -> float:
        start = time.perf_counter()
        result = module.training_step(batch, 0)
        (result["loss"] if isinstance(result, dict) else result).backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    return take
