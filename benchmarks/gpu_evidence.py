"""The runs of the recipe gpu_width, seed by seed, and their scores; where neither DVC nor MLflow is installed.

    python -m benchmarks.gpu_evidence train [--scale gpu] [--variant main]
    python -m benchmarks.gpu_evidence score [--scale gpu] [--variant main]

train: all arms of one seed before the next seed, as many runs at a time as the scale's `workers`; where the time ends,
whole seeds are there. An arm that fails is left out, and the others go on. score: the seeds that all arms have ended,
of the arms that have ended any.
"""

import argparse
import sys
from dataclasses import replace

from stemrepro.common.errors import UserError
from stemrepro.config.address import MAIN
from stemrepro.pipeline.plan import Plan, make_plan
from stemrepro.pipeline.runs import asked_runs, train_runs
from stemrepro.pipeline.score import evaluate
from stemrepro.training.run import Run

RECIPE = "gpu_width"
TRIES = 4
"""Of training: a failure ends the runs next to it, which begin anew without the arm that failed."""


def planned(scale: str, variant: str) -> tuple[Plan, list[Run]]:
    """Return what the recipe plans of a variant, and its runs seed by seed."""
    plan = make_plan(scale, (RECIPE,))
    chosen = {address: arm for address, arm in plan.runs.items() if address.variant == variant}
    return replace(plan, runs=chosen), sorted(asked_runs(plan, chosen), key=lambda run: run.seed)


def train(scale: str, variant: str) -> bool:
    """Train what hasn't ended, and return whether all has."""
    plan, runs = planned(scale, variant)
    left = [run for run in runs if not run.ended]
    for _ in range(TRIES):
        try:
            train_runs(left, plan.scale.workers, replace=False, done=len(runs) - len(left))
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
    plan, runs = planned(scale, variant)
    there = {run.address for run in runs if run.ended}
    seeds = ended_seeds([run for run in runs if run.address in there])
    if seeds:
        some = {
            address: replace(plan.runs[address], seeds={"losses": seeds}) for address in plan.runs if address in there
        }
        wide = plan.scale.model_copy(update={"workers": len(runs)})  # each needs a core, and little of a card
        evaluate(replace(plan, scale=wide, runs=some), "losses", some)
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
