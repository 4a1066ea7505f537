"""Commands that make something: text, runs, scores, figures, sweeps."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stemrepro.cli import names
from stemrepro.cli.base import Addresses, Recipes, Scale, app
from stemrepro.common.errors import UserError, checked
from stemrepro.common.paths import DATA, RESULTS, RUNS, SCORES
from stemrepro.common.provenance import no_repository
from stemrepro.common.stopping import leave_with_parent
from stemrepro.config.address import Address
from stemrepro.config.scores import SCORE_KINDS

ScaleOption = partial(typer.Option, help="a file of recipes/scales/", autocompletion=names.scales)
Untracked = Annotated[bool, typer.Option("--untracked", help="leave MLflow alone, which then needn't be installed")]
OF_MIX = ("fetch", "corpus")
STEPS = (*OF_MIX, "tokenizer", "blocks", "check")


@app.command()
def reproduce(
    scale: Annotated[str | None, ScaleOption(show_default="laptop")] = None,
    recipe: Recipes = None,
    untracked: Untracked = False,
) -> None:
    """Do all steps of a scale or a recipe, from text to figures and verdicts, each as far as it isn't done."""
    from stemrepro.cli.estimate import line
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline.plan import check_asked, make_plan
    from stemrepro.pipeline.reproduce import reproduce as do_all

    catalog, chosen = load(), tuple(recipe or ())
    at = scale or next((where for name in chosen for where in catalog.recipe(name).scales[:1]), "laptop")
    plan = make_plan(at, chosen, catalog)
    check_asked(catalog, at)
    print(line(plan))
    warn(no_repository())
    for path in filter(Path.is_symlink, (DATA, RUNS, SCORES, RESULTS)):
        warn(f"DVC refuses {path}/, which is a link; docs/howto.md says how another disk is used")
    anew = do_all(catalog, at, chosen, partial(print, flush=True), not untracked)
    if anew and plan.runs and not untracked:
        from stemrepro.cli.results import track  # MLflow: seconds, where nothing is new

        try:
            track(scale=at)
        except Exception as error:  # whatever MLflow says: results are there
            warn(f"MLflow is not up to date: {error}")
    if anew and plan.runs and catalog.scale(at).scoreboard == RESULTS.name:  # whose results are committed
        from rich.console import Console

        from stemrepro.pipeline.verify import verify

        verify(at, RESULTS, Console())
    print(f"figures and verdicts: {RESULTS / at}/")


def warn(sentence: str) -> None:
    """Print a sentence on stderr; nothing of none."""
    if sentence:
        print(f"stemrepro: {sentence}", file=sys.stderr)


@app.command()
def plan(scale: Scale = "laptop", recipe: Recipes = None) -> None:
    """Check recipes/; print the arms of a scale, and an estimate of runs, FLOPs, time and disk."""
    from rich.console import Console

    from stemrepro.cli import estimate
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline.plan import check_asked, make_plan

    catalog = load()
    chosen = make_plan(scale, recipe or (), catalog)
    check_asked(catalog, scale)
    estimate.show_arms(catalog, scale, [arm for arm in catalog.arms if arm in {a.arm for a in chosen.runs}], Console())
    print(*estimate.track_lines(catalog, chosen), estimate.line(chosen), sep="\n")
    if chosen.runs:
        print(estimate.text_line(chosen))


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="ARM[@VARIANT]", autocompletion=names.addresses)],
    scale: Annotated[str | None, ScaleOption(show_default="where a recipe asks")] = None,
) -> None:
    """Print the settings of a run, and which file or rule each has come from."""
    from rich.console import Console

    from stemrepro.cli import run_table
    from stemrepro.measures.catalog import load

    catalog = load()
    address = catalog.known(Address.parse(run))
    run_table.show(catalog, address, scale or run_table.home_scale(catalog, address), Console(highlight=False))


@app.command()
def data(
    step: Annotated[
        str | None, typer.Argument(help="all but check when left out", **names.one_of("step", STEPS, "stemrepro data"))
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(help="a text of recipes/mixes.yaml, for fetch and corpus", autocompletion=names.keys("mixes")),
    ] = None,
    scale: Scale = "laptop",
) -> None:
    """Make the text of a scale, from its sources to token blocks, or one step of the way.

    The step check reads the blocks whole and compares them with their hashes.
    """
    from stemrepro.config.mixes import BlendMix
    from stemrepro.data.integrity import verified_hash
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline import text
    from stemrepro.pipeline.plan import make_plan

    if step == "check":
        blend = DATA / scale / "mid" / "blocks"
        for blocks in [DATA / scale / "blocks", *([blend] if blend.exists() else [])]:
            print(f"{blocks}: all files are those that were written ({verified_hash(blocks, True)})")
        return
    catalog = load()
    own = None if mix is None else catalog.mixes[checked("mix", mix, catalog.mixes, "recipes/mixes.yaml")]
    if mix is not None and own is not None and step in OF_MIX:
        if isinstance(own, BlendMix):
            raise UserError(f"mix '{mix}' is a blend with a scale's own text; give that scale by --scale")
        steps = list(text.text_of_mix(mix, own)[: OF_MIX.index(step) + 1])
    else:
        steps = text.text_steps(make_plan(scale, (), catalog))
        ends = {"fetch": 1, "corpus": 2, "tokenizer": 3}
        steps = steps[: ends.get(step or "", len(steps))]
    for each in steps:
        print(f"{each.name}: {'made' if each.do() else 'nothing to do'}", flush=True)
    if step in (None, "blocks"):
        for name in ("vocabularies", "people", "mid"):  # DVC needs them also where no variant has such a text
            (DATA / scale / name).mkdir(exist_ok=True)


@app.command()
def train(
    runs: Addresses = None,
    scale: Scale = "laptop",
    untracked: Untracked = False,
    replace: Annotated[bool, typer.Option("--replace", help="remove runs that were made with other settings")] = False,
    shard: Annotated[str, typer.Option(help="I/N: share I of N of the runs, in about equal FLOPs")] = "1/1",
) -> None:
    """Train all seeds of arms; finished runs return at once, interrupted ones resume.

    Where the scale has a block `parallel`, torchrun or srun starts this command once for each device.
    """
    from stemrepro.cli.summary import losses_of_runs
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline import runs as of_plan
    from stemrepro.pipeline.plan import check_asked, make_plan

    catalog = load()
    plan = make_plan(scale, (), catalog)
    check_asked(catalog, scale)
    chosen = of_plan.share_of(of_plan.asked_runs(plan, names.chosen(plan, runs or [])), shard)
    warn(no_repository(of_dvc=False))  # once, and not in each worker
    (RUNS / scale).mkdir(parents=True, exist_ok=True)  # DVC needs it also where a scale has no runs
    if not of_plan.train(plan, chosen, replace, not untracked):
        return
    for run in chosen:
        if (step := run.diverged) is not None:
            said = f"{run} diverged: its loss is NaN or infinite from step {step} on; claims about it will say so"
            print(said, file=sys.stderr)
    print(losses_of_runs(chosen, RUNS / scale))


@app.command()
def adopt(
    archive: Annotated[Path, typer.Argument(help="a tar file of runs/SCALE and scores/SCALE")], scale: Scale = "laptop"
) -> None:
    """Take in runs and scores that another machine made of the same recipes, text and code."""
    from stemrepro.pipeline.adopt import adopt as take_in
    from stemrepro.pipeline.plan import make_plan

    taken, refused = take_in(make_plan(scale), archive)
    print(f"{len(taken)} runs and scores of the archive are here now")
    for sentence in refused:
        print(f"refused: {sentence}", file=sys.stderr)
    if refused:
        raise typer.Exit(1)


@app.command()
def score(
    runs: Addresses = None,
    scale: Scale = "laptop",
    kind: Annotated[
        str | None, typer.Option(help="only this kind", **names.one_of("kind", tuple(SCORE_KINDS), "--kind"))
    ] = None,
) -> None:
    """Score runs that aren't scored yet: validation losses, benchmarks through lm-eval, angles between FFN vectors."""
    from stemrepro.cli.summary import losses_of_scores
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline import reproduce
    from stemrepro.pipeline.plan import make_plan
    from stemrepro.pipeline.steps import do
    from stemrepro.pipeline.study import run_study_steps
    from stemrepro.pipeline.text import counts, text_steps

    catalog = load()
    plan = make_plan(scale, (), catalog)
    chosen = names.chosen(plan, runs or [])
    (SCORES / scale).mkdir(parents=True, exist_ok=True)
    for name, (new, total) in reproduce.score(plan, chosen, tuple(SCORE_KINDS) if kind is None else (kind,)).items():
        if total:
            print(f"{name}: {new} of {total} arms were scored now; they are in {SCORES / scale}/")
    if kind is None and not runs:
        counts(plan, text_steps(plan)[2]).do()
        for step in do(run_study_steps(plan, reproduce.studies_of(catalog, catalog.at(scale).recipes))):
            print(f"study {step.name}: made; it is in {step.home}/")
        reproduce.write_metrics(catalog, scale)
    if kind in (None, "losses"):
        print(losses_of_scores(chosen, SCORES / scale))


@app.command()
def study(
    recipe: Annotated[str, typer.Argument(autocompletion=names.recipes)],
    scale: Annotated[str | None, ScaleOption(show_default="its own")] = None,
) -> None:
    """Make the tables that a recipe reads of a published model, or of trained runs; a killed command resumes."""
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline.plan import make_plan
    from stemrepro.pipeline.reproduce import studies_of
    from stemrepro.pipeline.study import run_study_steps, study_steps

    catalog = load()
    at = scale or next(iter(catalog.recipe(recipe).scales), "smollm2")
    plan, studies = make_plan(at, (), catalog), studies_of(catalog, [recipe])
    for step in [*study_steps(plan, studies), *run_study_steps(plan, studies)]:
        print(f"{step.name}: {'made' if step.do() else 'nothing to do'}", flush=True)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="a file of recipes/sweeps/", autocompletion=names.sweeps)],
    scale: Scale = "laptop",
    workers: Annotated[int, typer.Option(min=1, help="processes to start (default: this one alone)")] = 1,
    worker: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Search fields of arms by Optuna on the tune split; start it again for another worker, or after a kill."""
    if worker:
        leave_with_parent()
    else:
        warn(no_repository(of_dvc=False))
    names.check_sweep(file)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from stemrepro.common import mkl_avx512
    from stemrepro.config.catalog import read_scales

    if (found := read_scales().get(scale)) and found.training.mkl_avx512:
        mkl_avx512.load()  # the catalogue has arms, which import torch
    from rich.console import Console

    from stemrepro.measures.catalog import load
    from stemrepro.sweeps.search import run_sweep

    run_sweep(file, load(), scale, DATA / scale / "blocks", RESULTS, workers, worker, Console())
