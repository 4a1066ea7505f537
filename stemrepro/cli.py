"""The command line: one table of commands. Heavy imports stay inside the commands, so that each starts fast."""

import argparse
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from stemrepro.errors import UserError

FOLLOW_SECONDS = 30
DATA, RUNS, SCORES, RESULTS = Path("data"), Path("runs"), Path("scores"), Path("results")


def plan(options: argparse.Namespace) -> int:
    """validates recipes/, writes params.yaml and prints the estimate (--check: only compares, --arms: only lists all arms)"""
    from rich.console import Console

    from stemrepro import plan as planning

    if options.arms:
        book = planning.load()
        planning.show_arms(book, options.scale, list(book.arms), Console())
    elif options.check:
        planning.check()
        stamp = DATA / options.scale / "plan-checked"  # what DVC orders the later stages by
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text("params.yaml follows from recipes/\n")
    else:
        book = planning.write(options.scale)
        if not options.quiet:
            planning.show(book, options.scale, Console())
    return 0


def data(options: argparse.Namespace) -> int:
    """one step of the data's way: fetch, corpus, items, tokenizer, blocks, vocabularies (of points); or counts, of the text alone"""
    from stemrepro.plan import mix, read_params

    step, values = options.step, read_params()
    if step in ("fetch", "corpus", "items"):
        settings, folder = mix(values, options.mix), DATA / options.mix
        if step == "fetch":
            from stemrepro.data.archives import fetch

            fetch(settings, folder / "raw")
        elif step == "corpus":
            from stemrepro.data.corpus import build_corpus

            build_corpus(options.mix, settings, folder / "raw", folder / "corpus")
        else:
            from stemrepro.data.items import write_items

            write_items(settings, folder / "raw", folder / "corpus" / "corpus.parquet", folder / "items")
        return 0
    scale, folder = values["scale"][options.scale], DATA / options.scale
    source = DATA / scale["data"]
    corpus = source / "corpus" / "corpus.parquet"
    if step == "tokenizer":
        from stemrepro.data.tokenizer import train_tokenizer

        train_tokenizer(corpus, scale["model"]["vocab"], folder / "tokenizer.json")
    elif step == "vocabularies":
        from stemrepro.data.vocabularies import write_vocabularies

        write_vocabularies(corpus, values["vocabularies"], folder / "vocabularies")
    elif step == "counts":
        from stemrepro.data.counting import write_counts
        from stemrepro.scale import Counting

        asked = Counting(**scale["counting"])
        write_counts(corpus, folder / "tokenizer.json", asked, SCORES / options.scale / "text")
    else:
        from stemrepro.data.blocks import write_blocks
        from stemrepro.data.card import data_card

        write_blocks(corpus, folder / "tokenizer.json", folder / "blocks")
        data_card(source, folder / "blocks", RESULTS / options.scale / "data_card.md")
    return 0


def _runs(options: argparse.Namespace, arms: list[str], part: str = "") -> list:
    """The runs of arms, or those at a recipe's points."""
    from stemrepro.data.vocabularies import own_text
    from stemrepro.plan import points_of, read_params, scale_and_arm
    from stemrepro.training.spec import Run

    data, values = DATA / options.scale, read_params()
    if options.points:
        _, points = points_of(values, options.scale, options.points)
        groups = {f"{options.points}/{place}": (place.replace("/", " at "), *point) for place, point in points.items()}
    else:
        groups = {arm: (arm, *scale_and_arm(values, options.scale, arm, part)) for arm in arms}
    runs = []
    for folder, (label, scale, arm, rate) in groups.items():
        scale, *text = own_text(scale, data)
        runs += [
            Run(label, seed, arm, scale, rate, RUNS / options.scale / folder / f"seed{seed}", *text)
            for seed in scale.seeds
        ]
    return runs


def _each_seed(function: Callable, runs: list, preload: str) -> list:
    from stemrepro.workers import run_jobs

    scale, names = runs[0].scale, [f"{run.arm_name} seed {run.seed}" for run in runs]
    os.environ.setdefault("HF_HUB_OFFLINE", "0" if scale.benchmarks.hub else "1")
    steps = [run.scale.steps for run in runs]
    return run_jobs(function, runs, names, steps, scale.workers, scale.training.threads, preload)


def train(options: argparse.Namespace) -> int:
    """trains all seeds of arms, or of a recipe's arms at its points; finished ones return at once, interrupted ones resume"""
    from stemrepro.jobs import train_job

    runs = _runs(options, options.arm or [])
    names = [options.points] if options.points else options.arm
    command = [sys.executable, "-m", "stemrepro.cli", "track", "--follow", "--scale", options.scale, "--arm", *names]
    # The follower ends when its input does, also when this is killed.
    with nullcontext() if options.untracked else subprocess.Popen(command, stdin=subprocess.PIPE):
        _each_seed(partial(train_job, replace=options.replace), runs, "stemrepro.training.train")
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """scores the runs of arms, or those at a recipe's points: validation losses, benchmarks through lm-eval, angles between FFN vectors"""
    if options.points:
        return _evaluate_points(options)
    for arm in options.arm:
        _evaluate_arm(options, arm)
    return 0


def _evaluate_arm(options: argparse.Namespace, arm: str) -> None:
    from stemrepro import jobs

    out = SCORES / options.scale / arm
    if options.part in (None, "losses"):
        from stemrepro.evaluation import losses

        runs = _runs(options, [arm])
        results = _each_seed(partial(jobs.loss_job, context=True), runs, "stemrepro.evaluation.losses")
        losses.write_scores(runs, results, out / "losses")
    if options.part in (None, "benchmarks"):
        from stemrepro.evaluation import benchmarks

        runs = _runs(options, [arm], "benchmark")
        files = {"tokenizer": DATA / options.scale / "tokenizer.json", "items": DATA / runs[0].scale.data / "items"}
        results = _each_seed(partial(jobs.benchmark_job, **files), runs, "stemrepro.evaluation.benchmarks")
        benchmarks.write_scores(runs, results, out / "benchmarks")
    if options.part in (None, "geometry"):
        from stemrepro.evaluation import geometry

        runs = _runs(options, [arm], "geometry")
        results = _each_seed(jobs.geometry_job, runs, "stemrepro.evaluation.geometry")
        geometry.write_scores(runs, results, out / "geometry")


def _evaluate_points(options: argparse.Namespace) -> int:
    from itertools import groupby

    from stemrepro import jobs
    from stemrepro.evaluation import losses
    from stemrepro.plan import points_of, read_params

    what, _ = points_of(read_params(), options.scale, options.points)
    runs, out = _runs(options, []), SCORES / options.scale / options.points
    job, write = (
        (jobs.steps_job, losses.write_steps)
        if what == "steps"
        else (partial(jobs.loss_job, context=False), losses.write_scores)
    )
    results = _each_seed(job, runs, "stemrepro.evaluation.losses")
    for folder, members in groupby(zip(runs, results, strict=True), lambda pair: pair[0].folder.parent):
        place = folder.relative_to(RUNS / options.scale / options.points)
        write(*map(list, zip(*members, strict=True)), out / place / "losses")
    return 0


def track(options: argparse.Namespace) -> int:
    """brings MLflow up to date with the run folders; rebuilds a deleted database"""
    import select

    from stemrepro.recipe import load
    from stemrepro.tracking import Tracker, tracking_uri

    tracker, more = Tracker(options.scale, load(), RUNS, SCORES, RESULTS), options.follow
    while more:
        tracker.sync(*options.arm or ())
        more = not select.select([sys.stdin], [], [], FOLLOW_SECONDS)[0]
    count = tracker.sync(*options.arm or ())
    if not options.follow:
        print(
            f"{count} runs of scale '{options.scale}' are in {tracking_uri()}; 'make ui' shows them, arms side by side at"
        )
        print(
            f"  http://127.0.0.1:5000/#/experiments/{tracker.experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART"
        )
    return 0


def paper(options: argparse.Namespace) -> int:
    """lists the paper's numbers with source and confidence; words filter them"""
    from rich.console import Console

    from stemrepro.paper import Paper
    from stemrepro.paper_table import find, show
    from stemrepro.recipe import RECIPES

    found = find(Paper(RECIPES / "paper.yaml"), options.words, options.confidence, options.missing)
    show(found, options.csv, Console())
    return 0


def cost(options: argparse.Namespace) -> int:
    """parameters, FLOPs and bytes of a shape with and without STEM, in closed form"""
    from rich.console import Console

    from stemrepro.cost_table import show
    from stemrepro.recipe import load

    asked = {name: getattr(options, name) for name in ("shape", "length", "batch", "distinct", "tflops")}
    show(load(), Console(), options.distinct is None, placement=options.stem, width=options.bytes, **asked)
    return 0


def sweep(options: argparse.Namespace) -> int:
    """searches fields of arms by Optuna on the tune split; start it again for another worker, or after a kill"""
    from rich.console import Console

    from stemrepro.recipe import load
    from stemrepro.sweeps import run_sweep

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_sweep(
        options.file,
        load(),
        options.scale,
        DATA / options.scale / "blocks",
        RESULTS,
        options.workers,
        options.worker,
        Console(),
    )
    return 0


def report(options: argparse.Namespace) -> int:
    """writes the page with every claim of a scale"""
    from stemrepro.plan import read_params
    from stemrepro.report.scoreboard import write_scoreboard

    out = Path(read_params()["scoreboard"])
    write_scoreboard(options.scale, RESULTS, out)
    print(f"every claim: {out}/index.html, and as a table in {out}/README.md")
    return 0


def verify(options: argparse.Namespace) -> int:
    """compares the verdicts with the committed ones; exit code 1 if one changed"""
    from rich.console import Console

    from stemrepro.verify import verify as compare

    return 0 if compare(options.scale, RESULTS, Console()) else 1


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "plan": plan,
    "data": data,
    "train": train,
    "evaluate": evaluate,
    "track": track,
    "paper": paper,
    "cost": cost,
    "sweep": sweep,
    "report": report,
    "verify": verify,
}


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    top = argparse.ArgumentParser(prog="stemrepro", description="Reproduces the STEM paper, claim by claim.")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    made = {name: commands.add_parser(name, help=function.__doc__) for name, function in COMMANDS.items()}
    for name in ("plan", "track", "report", "verify"):
        made[name].add_argument("--scale", default="laptop", help="a file of recipes/scales/ (default: laptop)")
    made["plan"].add_argument("--check", action="store_true", help="fail unless params.yaml follows from recipes/")
    made["plan"].add_argument("--arms", action="store_true", help="print every arm with its counts; write nothing")
    made["plan"].add_argument("--quiet", action="store_true", help="print no estimate")
    made["data"].add_argument(
        "step", choices=["fetch", "corpus", "items", "tokenizer", "blocks", "vocabularies", "counts"]
    )
    made["data"].add_argument("--mix", default="text", help="data mix, for fetch, corpus and items (default: text)")
    made["data"].add_argument("--scale", default="laptop", help="scale, for the last four (default: laptop)")
    for name in ("train", "evaluate"):
        made[name].add_argument("--scale", default="laptop")
        which = made[name].add_mutually_exclusive_group(required=True)
        which.add_argument("--arm", nargs="+", help="names of recipes/arms.yaml; runs of all of them share the workers")
        which.add_argument("--points", metavar="RECIPE", help="a recipe's arms at its points")
    made["evaluate"].add_argument(
        "--part", choices=["losses", "benchmarks", "geometry"], help="only this (default: all)"
    )
    made["track"].add_argument(
        "--arm", nargs="+", help="only these arms, or recipes' points (default: all that have runs)"
    )
    made["track"].add_argument("--follow", action="store_true", help="keep up with a training until the input ends")
    made["paper"].add_argument("words", nargs="*", help="words that a cell's name, item, title or source must hold")
    made["paper"].add_argument("--confidence", choices=["read", "inferred", "secondary", "figure"])
    made["paper"].add_argument("--missing", action="store_true", help="only what was looked for and not found")
    made["paper"].add_argument("--csv", action="store_true", help="comma-separated values")
    made["cost"].add_argument("--shape", required=True, help="a name of recipes/shapes.yaml, or a scale")
    made["cost"].add_argument("--stem", choices=["third", "half", "full"], default="third", help="layers replaced")
    made["cost"].add_argument("--length", type=int, help="tokens a sequence (default: the shape's)")
    made["cost"].add_argument("--batch", type=int, default=1, help="sequences (default: 1)")
    made["cost"].add_argument("--bytes", type=int, default=2, help="bytes a number (default: 2)")
    made["cost"].add_argument("--distinct", type=int, help="distinct tokens in the batch (default: a Zipf estimate)")
    made["cost"].add_argument(
        "--tflops", type=float, default=400, help="TFLOP/s that the device sustains (default: 400)"
    )
    made["sweep"].add_argument("file", type=Path, help="a file of recipes/sweeps/")
    made["sweep"].add_argument("--scale", default="laptop")
    made["sweep"].add_argument("--workers", type=int, default=1, help="processes to start (default: this one alone)")
    made["sweep"].add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    made["train"].add_argument(
        "--untracked", action="store_true", help="leave MLflow alone, which then need not be installed"
    )
    made["train"].add_argument("--replace", action="store_true", help="remove runs that were made with other settings")
    return top


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; bad input ends with one sentence and exit code 2."""
    options = parser().parse_args(arguments)
    try:
        code = COMMANDS[options.command](options)
    except UserError as error:
        print(f"stemrepro: {error}", file=sys.stderr)
        code = 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(
            f"stemrepro: no room left on the disk ({error.filename or 'while writing'}); make some and run again",
            file=sys.stderr,
        )
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
