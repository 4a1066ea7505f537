"""The runs of the recipe gpu_width, seed by seed, and their scores; where neither DVC nor MLflow is installed.

    python -m benchmarks.gpu_evidence train [--scale gpu] [--variant main]
    python -m benchmarks.gpu_evidence score [--scale gpu] [--variant main]

train: all arms of one seed before the next seed, as many runs at a time as the scale's `workers`; where the time ends,
whole seeds are there. An arm that fails is left out, and the others go on. score: the seeds that all arms have ended,
of the arms that have ended any.
"""

import argparse
import sys

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.catalog import load
from stemrepro.pipeline.plan import make_params
from stemrepro.pipeline.runs import Params, Planned, asked_runs, train_runs
from stemrepro.pipeline.score import evaluate
from stemrepro.training.run import Run

RECIPE = "gpu_width"
TRIES = 4
"""Of training: a failure ends the runs next to it, which begin anew without the arm that failed."""


def planned(scale: str, variant: str) -> tuple[Params, dict[Address, Planned], list[Run]]:
    """Return the plan of the recipe, and what it has of a variant: arms, and their runs seed by seed."""
    params = make_params(load(), scale, (RECIPE,))
    every = params.planned(scale)
    chosen = {address: arm for address, arm in every.items() if address.variant == variant}
    runs = asked_runs(scale, params.scale[scale].data, every, chosen)
    return params, chosen, sorted(runs, key=lambda run: run.seed)


def train(scale: str, variant: str) -> bool:
    """Train what hasn't ended, and return whether all has."""
    params, _, runs = planned(scale, variant)
    left = [run for run in runs if not run.ended]
    for _ in range(TRIES):
        try:
            train_runs(left, params.scale[scale].workers, replace=False, done=len(runs) - len(left))
            break
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
            failed = next((run.address for run in left if str(error).startswith(f"{run} ")), None)
            left = [run for run in left if not run.ended and run.address != failed]
    return all(run.ended for run in runs)


def ended_seeds(runs: list[Run]) -> tuple[int, ...]:
    """Return the seeds of which every run has ended."""
    return tuple(sorted({run.seed for run in runs} - {run.seed for run in runs if not run.ended}))


def score(scale: str, variant: str) -> tuple[int, ...]:
    """Score the seeds that all arms of a variant have ended, but for arms without any, and return them."""
    params, every, runs = planned(scale, variant)
    there = {run.address for run in runs if run.ended}
    chosen = {address: arm for address, arm in every.items() if address in there}
    seeds = ended_seeds([run for run in runs if run.address in there])
    if seeds:
        some = {address: arm.model_copy(update={"seeds": {"losses": seeds}}) for address, arm in chosen.items()}
        wide = params.scale[scale].model_copy(update={"workers": len(runs)})  # each needs a core, and little of a card
        evaluate(params.model_copy(update={"scale": {scale: wide}}), scale, "losses", some)
    return seeds


def main() -> None:
    """Train or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("train", "score"))
    parser.add_argument("--scale", default="gpu")
    parser.add_argument("--variant", default=MAIN)
    given = parser.parse_args()
    if given.part == "train":
        sys.exit(0 if train(given.scale, given.variant) else 1)
    seeds = score(given.scale, given.variant)
    print(f"scored: seeds {', '.join(map(str, seeds)) or 'none'} of {given.variant}")
    sys.exit(0 if seeds else 1)


if __name__ == "__main__":
    main()
