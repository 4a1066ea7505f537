"""How long does a training step of an arm take, compiled, next to dense's?

    python -m benchmarks.engine [--scale laptop] [--rounds 60] [--arms stem-third stem-full token-only]

Each round takes one step of everything, in another order each time, on the same random tokens. A ratio is the median
over rounds; `FLOPs` is what it would be if time followed FLOPs. Nothing else should run meanwhile.
"""

import pandas as pd
import torch

from benchmarks.runs import interleaved, own_step, parser_of, ready
from stemrepro.model.cost import flops_per_token
from stemrepro.training.module import LanguageModule


def main() -> None:
    """Print a row per model."""
    parser = parser_of(__doc__, rounds=60)
    parser.add_argument("--arms", nargs="*", default=["stem-third", "stem-full", "token-only"])
    options = parser.parse_args()
    scale, runs = ready(options, ("dense", *options.arms))
    length, size = scale.model.sequence, (scale.training.micro_batch, scale.model.sequence + 1)
    steps = {arm: own_step(LanguageModule(run, compile=True)) for arm, run in runs.items()}
    steps["dense, eager"] = own_step(LanguageModule(runs["dense"]))
    seconds = pd.DataFrame(interleaved(steps, size, scale.model.vocab, options.rounds))
    table = pd.DataFrame({"tokens/s": size[0] * length / seconds.median()}).round()
    table["step / dense"] = seconds.div(seconds["dense"], axis=0).median().round(3)
    flops = pd.Series({arm: flops_per_token(run.model, length) for arm, run in runs.items()})
    table["FLOPs / dense"] = (flops / flops["dense"]).round(3)
    print(table.to_string())
    print(f"{options.rounds} rounds, {torch.get_num_threads()} thread(s), torch {torch.__version__}")


if __name__ == "__main__":
    main()
