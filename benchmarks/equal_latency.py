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
    """Print quartiles of a step / the other's by width, and the factor of the scale's ffn_width."""
    parser = parser_of(__doc__, rounds=120)
    parser.add_argument("--arm", default="dense")
    parser.add_argument("--other", default="stem-full")
    parser.add_argument("--factors", type=float, nargs="+", default=(0.6, 0.7, 0.8, 0.9, 1.0, 1.1))
    options = parser.parse_args()
    scale, runs = ready(options, (options.other, options.arm))
    arm, size = runs[options.arm], (scale.training.micro_batch, scale.model.sequence + 1)
    tried = {"other": runs[options.other]}
    for width in (round(factor * scale.model.ffn_width) for factor in options.factors):
        tried[str(width)] = replace(arm, model=replace(arm.model, ffn_width=width))
    steps = {name: own_step(LanguageModule(run, compile=scale.training.compile)) for name, run in tried.items()}
    seconds = pd.DataFrame(interleaved(steps, size, scale.model.vocab, options.rounds))
    ratios = seconds.div(seconds.pop("other"), axis=0)
    factors = ratios.columns.astype(float) / scale.model.ffn_width
    print(ratios.quantile([0.25, 0.5, 0.75]).T.round(3).to_string())
    fifths = [equal_factor(factors, fifth) for fifth in np.array_split(ratios.to_numpy(), 5)]
    print(
        f"ffn_factor: {equal_factor(factors, ratios.to_numpy()):.3f} (fifths of the rounds: {min(fifths):.3f} to "
        f"{max(fifths):.3f}); {options.rounds} rounds, torch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
