"""Is the engine fast? A training step of arms, compiled, next to dense's, eager and compiled, in one process.

    python -m benchmarks.engine [--scale laptop] [--rounds 60] [--arms stem-third stem-full token-only]

Each round takes one step of everything, in another order each time, on the same random tokens. A row has medians over
rounds: of its step's time, and of its ratio by round to the row named in the column's head. `FLOPs` is the ratio of an
arm's step to dense's if time followed FLOPs. Nothing else should run meanwhile. benchmarks/peers.py compares with other
libraries' models.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Column, Table

from benchmarks.runs import as_a_worker, interleaved, own_step, run_at
from stemrepro.measures.catalog import load
from stemrepro.model.cost import flops_per_token
from stemrepro.training.module import LanguageModule


def main() -> None:
    """Print a row per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--arms", nargs="*", default=["stem-third", "stem-full", "token-only"])
    options = parser.parse_args()
    as_a_worker()
    catalog = load()
    scale, blocks = catalog.scale(options.scale), Path("data") / options.scale / "blocks"
    torch.set_num_threads(scale.training.threads)
    runs = {arm: run_at(catalog, scale, arm, blocks, Path("none")) for arm in ("dense", *options.arms)}
    shape, length = runs["dense"].model, scale.model.sequence
    steps = {"dense, eager": own_step(LanguageModule(runs["dense"]))}
    steps |= {f"{arm}, compiled": own_step(LanguageModule(run, compile=True)) for arm, run in runs.items()}
    size = (scale.training.micro_batch, length + 1)
    seconds = interleaved(steps, size, shape.vocab, options.rounds)
    against = ["dense, eager", "dense, compiled"]
    table = Table(Column("", no_wrap=True), "tokens/s", *(f"step / {name}" for name in against), "FLOPs / dense")
    dense = flops_per_token(shape, length)
    for name, times in seconds.items():
        ratios = [np.median(times / seconds[other]) for other in against]
        flops = f"{flops_per_token(runs[name.partition(',')[0]].model, length) / dense:.3f}"
        speed = size[0] * length / np.median(times)
        table.add_row(name, f"{speed:,.0f}", *(f"{ratio:.3f}" for ratio in ratios), flops)
    Console(width=max(Console().width, 110)).print(table)
    print(f"{options.rounds} rounds, {torch.get_num_threads()} thread(s), torch {torch.__version__}")


if __name__ == "__main__":
    main()
