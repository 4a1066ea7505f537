"""Runs and steps for measurements: an arm at a scale, in a given folder, in a process like a worker."""

import os
import random
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from stemrepro.common.progress import track
from stemrepro.common.workers import ENVIRONMENT
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Scale, Variant
from stemrepro.data.integrity import verified_hash
from stemrepro.measures.catalog import load
from stemrepro.training.module import LanguageModule
from stemrepro.training.run import Run

Step = Callable[[torch.Tensor], object]
WARM_UP = 5


def as_a_worker() -> None:
    """Start this very command anew with the environment of workers, which glibc reads then, unless it has it."""
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, sys.orig_argv, os.environ | ENVIRONMENT)


def run_at(catalog: Catalog, scale: Scale, arm: str, blocks: Path, folder: Path) -> Run:
    """Return seed 0 of an arm at a scale, on some token blocks."""
    model, training = run_settings(Address(MAIN, arm), catalog.arms[arm], Variant(), scale)
    return Run(Address(MAIN, arm), 0, model, training, folder, scale.data, blocks, verified_hash(blocks))


def parser_of(words: str | None, rounds: int) -> ArgumentParser:
    """Return what reads the options of a command that times steps."""
    parser = ArgumentParser(description=words, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--blocks", type=Path, help="token blocks; default: data/SCALE/blocks")
    return parser


def ready(options: Namespace, arms: Iterable[str]) -> tuple[Scale, dict[str, Run]]:
    """Become a process like a worker of the scale -> the scale, and a run of each arm at it."""
    as_a_worker()
    catalog = load()
    scale = catalog.scale(options.scale)
    torch.set_num_threads(scale.training.threads)
    blocks = options.blocks or Path("data", options.scale, "blocks")
    return scale, {arm: run_at(catalog, scale, arm, blocks, Path("none")) for arm in arms}


def own_step(module: LanguageModule) -> Step:
    """Return a step as in training on a batch [sequences, length + 1]."""
    optimizer = module.configure_optimizers()["optimizer"]

    def take(batch: torch.Tensor) -> None:
        result = module.training_step(batch, 0)
        (result["loss"] if isinstance(result, dict) else result).backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
        optimizer.zero_grad()

    return take


def interleaved(turns: dict[str, Step], size: tuple[int, int], vocab: int, rounds: int) -> dict[str, np.ndarray]:
    """Return the seconds of each turn, [rounds], after WARM_UP rounds; a round has an order and tokens of its own."""
    seconds, order = {name: np.empty(rounds) for name in turns}, list(turns)
    for number in track(range(-WARM_UP, rounds), "rounds"):
        batch = torch.randint(1, vocab, size, generator=torch.Generator().manual_seed(number + WARM_UP))
        random.Random(number + WARM_UP).shuffle(order)
        for name in order:
            start = time.perf_counter()
            turns[name](batch)
            if number >= 0:
                seconds[name][number] = time.perf_counter() - start
    return seconds
