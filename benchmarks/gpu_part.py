"""One section of a GPU's ten minutes (benchmarks/gpu_job.py), where neither DVC nor MLflow is installed.

    python -m benchmarks.gpu_part PART [--device cpu] [--scale gpu] [--variant width-384] [--shape NAME] [--out OUT]

ceilings, training, serving (benchmarks/gpu_speed.py), modules, paths (benchmarks/gpu_checks.py): rows, printed and in
OUT/rows.jsonl. train: the runs of the recipe gpu_width, all arms of one seed before the next. score: the seeds that all
arms have ended, of the arms that have ended any. Exit code 1: something raised, lies too far apart or didn't end.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.catalog import load
from stemrepro.pipeline.plan import Plan, make_plan
from stemrepro.pipeline.runs import asked_runs, train_runs
from stemrepro.pipeline.score import evaluate
from stemrepro.training.run import Run


def planned(scale: str, variant: str) -> tuple[Plan, list[Run]]:
    """Return what the recipe plans of a variant, and its runs seed by seed."""
    plan = make_plan(scale, ("gpu_width",))
    chosen = {address: arm for address, arm in plan.runs.items() if address.variant == variant}
    return replace(plan, runs=chosen), sorted(asked_runs(plan, chosen), key=lambda run: run.seed)


def train(scale: str, variant: str) -> bool:
    """Train what hasn't ended, and return whether all has."""
    plan, runs = planned(scale, variant)
    failed: set[Address] = set()
    for _ in range(4):  # a failure ends the runs next to it, which begin anew without the arm that failed
        left = [run for run in runs if not run.ended and run.address not in failed]
        try:
            train_runs(left, plan.scale.workers, replace=False, done=len(runs) - len(left))
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
            failed |= {run.address for run in left if str(error).startswith(f"{run} ")}
    return all(run.ended for run in runs)


def score(scale: str, variant: str) -> tuple[int, ...]:
    """Score the seeds that all arms of a variant have ended, but for arms without any, and return them."""
    plan, runs = planned(scale, variant)
    there = {run.address for run in runs if run.ended}
    asked = [run for run in runs if run.address in there]
    seeds = tuple(sorted({run.seed for run in asked} - {run.seed for run in asked if not run.ended}))
    if seeds:
        some = {address: replace(plan.runs[address], seeds={"losses": seeds}) for address in there}
        wide = plan.scale.model_copy(update={"workers": len(runs)})  # each needs a core, and little of a card
        evaluate(replace(plan, scale=wide, runs=some), "losses", some)
    return seeds


def measured(part: str, shape: str, device: str, out: Path) -> Iterator[dict]:
    """Yield the rows of a part; the ceilings write about.json too."""
    import torch  # not for runs and scores, whose processes import it

    from benchmarks import gpu_checks, gpu_speed

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here; give --device cpu")
    catalog = load()
    if part == "ceilings":
        write_json(out / "about.json", gpu_speed.about(device))
        yield gpu_speed.ceilings(device)
    elif part in ("modules", "paths"):
        yield from getattr(gpu_checks, part)(catalog, device)
    else:
        sizes = catalog.shapes[shape] if device == "cuda" else catalog.scale(gpu_checks.SCALE).model
        yield from ({"shape": shape} | row for row in gpu_speed.rows(part, catalog, sizes, device))


def main() -> None:
    """Do one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("ceilings", "modules", "training", "paths", "train", "score", "serving"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    for name, value in (("--scale", "gpu"), ("--variant", MAIN), ("--shape", "mobilellm-350m")):
        parser.add_argument(name, default=value)
    parser.add_argument("--out", type=Path, default=Path("out"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.part in ("train", "score"):
        sys.exit(0 if {"train": train, "score": score}[given.part](given.scale, given.variant) else 1)
    good = True
    for row in measured(given.part, given.shape, given.device, given.out):
        line = json.dumps({"section": given.part} | row)
        print(line, flush=True)
        with open(given.out / "rows.jsonl", "a", encoding="utf-8") as rows:
            rows.write(line + "\n")
        good &= row.get("holds", True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
