"""How wide is the FFN of an arm whose training step takes as long as another's?

    python -m benchmarks.equal_latency [--scale laptop] [--arm dense] [--other stem-full] [--factors 0.6 0.8 1.0]

The answer is the ffn_factor of dense-equal-latency in recipes/arms.yaml; with `--other dense` the d_ff at which an arm
is as fast as dense, over the scale's (below 0: none). Every round takes one step of the other and of the arm at some
widths. A straight line through the median ratios of steps gives the width at which it is 1; each fifth of the rounds
gives it again, to show how far the answer wanders. Nothing else should run meanwhile.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from benchmarks.runs import interleaved, own_step, parser_of, ready
from stemrepro.training.module import LanguageModule


def equal_factor(factors: np.ndarray, ratios: np.ndarray) -> float:
    """Return where a straight line through median ratios is 1: factors [n], ratios [rounds, n]."""
    slope, offset = np.polyfit(factors, np.median(ratios, axis=0), 1)
    return float((1 - offset) / slope)


def main() -> None:
    """Print a row per width, and the factor of the scale's ffn_width."""
    parser = parser_of(__doc__, rounds=120)
    parser.add_argument("--arm", default="dense")
    parser.add_argument("--other", default="stem-full")
    parser.add_argument("--factors", type=float, nargs="+", default=(0.6, 0.7, 0.8, 0.9, 1.0, 1.1))
    options = parser.parse_args()
    scale, runs = ready(options, (options.other, options.arm))
    widths = [round(factor * scale.model.ffn_width) for factor in options.factors]
    arm = runs[options.arm]
    tried = [runs[options.other], *(replace(arm, model=replace(arm.model, ffn_width=width)) for width in widths)]
    steps = {str(k): own_step(LanguageModule(run, compile=scale.training.compile)) for k, run in enumerate(tried)}
    size = scale.training.micro_batch, scale.model.sequence + 1
    seconds = np.stack([*interleaved(steps, size, scale.model.vocab, options.rounds).values()], axis=1)
    ratios, factors = seconds[:, 1:] / seconds[:, :1], np.array(widths) / scale.model.ffn_width
    table = pd.DataFrame({"ffn_width": widths, "ms": 1e3 * np.median(seconds[:, 1:], axis=0)}, factors.round(2))
    table[["25%", f"step / {options.other}", "75%"]] = np.quantile(ratios, (0.25, 0.5, 0.75), axis=0).T
    print(table.round(3).to_string())
    fifths = [equal_factor(factors, fifth) for fifth in np.array_split(ratios, 5)]
    print(f"{options.other}: {1e3 * np.median(seconds[:, 0]):.2f} ms a step, torch {torch.__version__}")
    low, high = min(fifths), max(fifths)
    print(f"ffn_factor: {equal_factor(factors, ratios):.3f} (fifths of the rounds: {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
