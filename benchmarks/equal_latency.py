"""How wide is the FFN of an arm whose training step takes as long as another's?

    python -m benchmarks.equal_latency [--scale laptop] [--arm dense] [--other stem-full] [--factors 0.6 0.8 1.0]
        [--rounds 120] [--blocks data/laptop/blocks]

The answer is the ffn_factor of dense-equal-latency in recipes/arms.yaml. With `--other dense` it is the d_ff at
which an arm is as fast as dense, over the scale's; below 0 there is none.
In every round the other and the arm at some widths take one step each, compiled where the scale is, in another order
each time. A width's ratio is the median over rounds of its step / the other's step of that round. A straight line
through the ratios gives the width at which it is 1. The same from each fifth of the rounds shows how far the answer
wanders. Nothing else should run meanwhile.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.runs import as_a_worker, interleaved, own_step, run_at
from stemrepro.measures.catalog import load
from stemrepro.training.module import LanguageModule

FACTORS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
PARTS = 5


def equal_factor(factors: np.ndarray, ratios: np.ndarray) -> float:
    """Return where a straight line through median ratios is 1: factors [n], ratios [rounds, n]."""
    slope, offset = np.polyfit(factors, np.median(ratios, axis=0), 1)
    return float((1 - offset) / slope)


def main() -> None:
    """Print a row per width, and the factor of the scale's ffn_width."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--arm", default="dense")
    parser.add_argument("--other", default="stem-full")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--blocks", type=Path)
    options = parser.parse_args()
    as_a_worker()
    catalog, blocks = load(), options.blocks or Path("data") / options.scale / "blocks"
    scale = catalog.scale(options.scale)
    torch.set_num_threads(scale.training.threads)
    runs = [run_at(catalog, scale, name, blocks, Path("none")) for name in (options.other, options.arm)]
    widths = [round(factor * scale.model.ffn_width) for factor in options.factors]
    runs = [runs[0], *(replace(runs[1], model=replace(runs[1].model, ffn_width=width)) for width in widths)]
    steps = {str(k): own_step(LanguageModule(run, compile=scale.training.compile)) for k, run in enumerate(runs)}
    size = scale.training.micro_batch, scale.model.sequence + 1
    seconds = np.stack([*interleaved(steps, size, scale.model.vocab, options.rounds).values()], axis=1)
    ratios, factors = seconds[:, 1:] / seconds[:, :1], np.array(widths) / scale.model.ffn_width
    table = Table(f"FFN of {options.arm}", "ffn_width", "ms per step", f"step / {options.other}", "quartiles")
    for factor, width, times, width_ratios in zip(factors, widths, seconds[:, 1:].T, ratios.T, strict=True):
        low, middle, high = np.quantile(width_ratios, (0.25, 0.5, 0.75))
        table.add_row(
            f"{factor:.2f}", str(width), f"{1e3 * np.median(times):.2f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}"
        )
    parts = [equal_factor(factors, part) for part in np.array_split(ratios, PARTS)]
    Console().print(table)
    print(
        f"{options.other}: {1e3 * np.median(seconds[:, 0]):.2f} ms per step, "
        f"{options.rounds} rounds, torch {torch.__version__}"
    )
    print(
        f"ffn_factor: {equal_factor(factors, ratios):.3f} (fifths of the rounds: {min(parts):.3f} to {max(parts):.3f})"
    )


if __name__ == "__main__":
    main()
