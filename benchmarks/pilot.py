"""The pilot behind the laptop scale: learning rates and paired spreads on the tune split, on seeds used nowhere else.

    python benchmarks/pilot.py --rates 0.004 0.008 0.016 0.032 [--seeds 6] [--arms dense stem-full token-only]

Trains arm x rate x seed at the laptop scale on the corpus that `dvc repro blocks` made, keeps what is finished in
`--out`, and writes pilot.csv there: one row a run, mean loss in nats per token of each source of the tune split.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from safetensors.torch import load_file

from stemrepro.data.blocks import TokenBlocks
from stemrepro.data.sources import PROSE
from stemrepro.files import sha256
from stemrepro.model.transformer import Decoder
from stemrepro.recipe import load
from stemrepro.training.callbacks import losses_by_source
from stemrepro.training.spec import Run
from stemrepro.training.train import train
from stemrepro.workers import run_jobs

FIRST_SEED = 100


def job(run: Run, report: Callable) -> dict:
    """Trains one run and scores it on the tune split."""
    train(run, report, replace=True)
    model = Decoder(run.model)
    model.load_state_dict(load_file(run.weights))
    blocks = TokenBlocks(run.blocks, "tune", run.scale.model.sequence, run.model.vocab)
    losses = losses_by_source(model, blocks, run.scale.evaluation.tokens, run.scale.evaluation.batch)
    for snapshot in run.folder.glob("tables-*"):
        snapshot.unlink()
    prose = sum(losses[source] for source in PROSE) / len(PROSE)
    return {"arm": run.arm_name, "rate": run.learning_rate, "seed": run.seed, "prose": prose, **losses}


def main() -> None:
    """Runs the grid, or what is left of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--arms", nargs="+", default=["dense", "stem-full", "token-only"])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--blocks", type=Path, default=Path("data/laptop/blocks"))
    parser.add_argument("--out", type=Path, default=Path("pilot"))
    options = parser.parse_args()
    book = load()
    scale, data_hash = book.scale("laptop"), sha256(options.blocks / "train.bin")
    jobs = [
        Run(arm, FIRST_SEED + seed, book.arms[arm], scale, rate, options.out / f"{rate:g}" / arm / f"seed{seed}",
            options.blocks, data_hash)
        for rate in options.rates for arm in options.arms for seed in range(options.seeds)
    ]  # fmt: skip
    names = [f"{run.arm_name} {run.learning_rate:g} seed {run.seed}" for run in jobs]
    rows = run_jobs(job, jobs, names, scale.steps, 2, 1, "stemrepro.training.train")
    table = options.out / "pilot.csv"
    old = pd.read_csv(table) if table.exists() else pd.DataFrame()
    merged = pd.concat([old, pd.DataFrame(rows)]).drop_duplicates(["arm", "rate", "seed"], keep="last")
    merged.sort_values(["arm", "rate", "seed"]).to_csv(table, index=False, float_format="%.6f")
    print(merged.groupby(["arm", "rate"])[["prose", "bible", "speeches", "factbook", "glosses"]].mean().round(4))
    best = merged.groupby(["arm", "rate"])["prose"].mean().groupby("arm").idxmin()
    print("best rate by prose loss:", {arm: rate for arm, rate in best})


if __name__ == "__main__":
    main()
