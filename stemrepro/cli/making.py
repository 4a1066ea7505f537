"""Commands that make something: plans, data, runs, scores, sweeps."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from stemrepro.cli import names
from stemrepro.cli.base import Addresses, Scale, app
from stemrepro.common.errors import UserError, unknown
from stemrepro.common.paths import DATA, RESULTS, RUNS, SCORES
from stemrepro.common.provenance import commit, no_repository
from stemrepro.common.stopping import leave_with_parent
from stemrepro.config.mixes import is_large
from stemrepro.config.scores import PARTS

OF_MIX = ("fetch", "corpus", "items")
STEPS = (*OF_MIX, "tokenizer", "blocks", "vocabularies", "people", "mid", "counts", "check")


@app.command()
def plan(
    scale: Scale = "laptop",
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="only what this recipe needs; may be repeated", autocompletion=names.recipes),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="fail unless plan/ and dvc.yaml follow from recipes/")] = False,
    arms: Annotated[bool, typer.Option("--arms", help="print every arm with its counts; write nothing")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print no estimate")] = False,
) -> None:
    """Validate recipes/, write plan/ for DVC, and print the estimate."""
    from stemrepro.pipeline import plan as planning

    if check:
        from stemrepro.pipeline.stages import write_stamps

        if recipe:
            raise UserError("--check compares the whole plan; leave --recipe out")
        params = planning.check()
        params.planned(scale)
        write_stamps(params)
        return
    from rich.console import Console

    from stemrepro.cli import estimate
    from stemrepro.pipeline.dvc_files import mend
    from stemrepro.pipeline.stages import DRAWING

    if arms:
        catalog = planning.load()
        estimate.show_arms(catalog, scale, list(catalog.arms), Console())
        return
    catalog, params = planning.write(scale, tuple(recipe or ()))
    for path in mend():
        back = f"; 'git restore {path}' brings the committed one back" if path == DRAWING.with_suffix(".lock") else ""
        print(f"stemrepro: {path} was cut short by a kill, and DVC refuses it; it is removed{back}", file=sys.stderr)
    if not quiet:
        estimate.show(catalog, params, Console())
    links = [f"DVC refuses {path}/, which is a link; docs/howto.md says how another disk is used"
             for path in (DATA, RUNS, SCORES, RESULTS) if path.is_symlink()]  # fmt: skip
    for sentence in filter(None, [no_repository(), *links]):
        print(f"stemrepro: {sentence}", file=sys.stderr)


@app.command()
def data(
    step: Annotated[str, typer.Argument(**names.one_of("step", STEPS))],
    mix: Annotated[
        str, typer.Option(help="data mix, for fetch, corpus and items", autocompletion=names.mixes)
    ] = "text",
    scale: Annotated[str, typer.Option(help="scale, for the other steps", autocompletion=names.scales)] = "laptop",
) -> None:
    """Run one step from sources to token blocks.

    The steps are fetch, corpus, items, tokenizer and blocks; vocabularies, people and mid, which variants need; and
    counts, of the text alone. The step check reads the blocks whole and compares them with their hashes.
    """
    if step in OF_MIX:
        _data_of_mix(step, mix)
    else:
        _data_of_scale(step, scale)


def _data_of_mix(step: str, mix: str) -> None:
    from stemrepro.pipeline.planned import read_params

    params = read_params()
    if mix not in params.mix:
        raise unknown("mix", mix, params.mix, "plan/params.yaml, what is planned,")
    settings, folder = params.mix[mix], DATA / mix
    if step == "fetch":
        from stemrepro.data.archives import fetch

        fetch(settings, folder / "raw")
    elif step == "corpus":
        from stemrepro.data.corpus import build_corpus

        build_corpus(mix, settings, folder / "raw", folder / "corpus")
    else:
        from stemrepro.data.items import write_items

        write_items(settings, folder / "raw", folder / "corpus" / "corpus.parquet", folder / "items")


def _data_of_scale(step: str, scale: str) -> None:
    params = names.planned(scale)
    settings, folder = params.scale[scale], DATA / scale
    source = DATA / settings.data
    corpus = source / "corpus" / "corpus.parquet"
    if step == "tokenizer":
        from stemrepro.data.tokenizer import train_tokenizer

        train_tokenizer(corpus, settings.vocab, folder / "tokenizer.json")
    elif step == "vocabularies":
        from stemrepro.data.vocabularies import write_vocabularies

        write_vocabularies(corpus, list(settings.vocabularies), folder / "vocabularies")
    elif step == "people":
        from stemrepro.data.people import write_people

        write_people(params.mix[settings.data], list(settings.people), folder / "tokenizer.json", folder / "people")
    elif step == "mid":
        from stemrepro.data.blend import write_blend

        mid = settings.mid
        if mid is None:
            raise UserError(f"no recipe of scale '{scale}' trains on a blend")
        card = RESULTS / scale / "data_card_mid.md"
        own = folder / "blocks" if is_large(params.mix[settings.data]) else None
        place = (corpus.parent, folder / "tokenizer.json", folder / "mid", card)
        write_blend(mid.name, mid.mix, mid.tokens, *place, own=own)
    elif step == "check":
        from stemrepro.data.integrity import verified_hash

        blend = folder / "mid" / "blocks"
        for blocks in [folder / "blocks", *([blend] if blend.exists() else [])]:
            print(f"{blocks}: all files are those that were written ({verified_hash(blocks, True)})")
    elif step == "counts":
        from stemrepro.data.counting import write_counts

        write_counts(corpus, folder / "tokenizer.json", settings.counting, SCORES / scale / "text")
    else:
        from stemrepro.data.card import data_card
        from stemrepro.data.encoding import write_blocks
        from stemrepro.data.large import write_large

        if is_large(params.mix[settings.data]):
            write_large(source / "raw", corpus, folder / "tokenizer.json", folder / "blocks")
        else:
            write_blocks(corpus, folder / "tokenizer.json", folder / "blocks")
        data_card(source, folder / "blocks", RESULTS / scale / "data_card.md")


@app.command()
def train(
    runs: Addresses = None,
    scale: Scale = "laptop",
    untracked: Annotated[
        bool, typer.Option("--untracked", help="leave MLflow alone, which then needn't be installed")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="remove runs that were made with other settings")] = False,
    shard: Annotated[str, typer.Option(help="I/N: share I of N of the runs, in about equal FLOPs")] = "1/1",
) -> None:
    """Train all seeds of arms; finished runs return at once, interrupted ones resume.

    Where the scale has a block `parallel`, torchrun or srun starts this command once for each device.
    """
    from stemrepro.cli.summary import losses_of_runs
    from stemrepro.pipeline.planned import asked_runs, share_of, train_runs
    from stemrepro.tracking.follow import followed

    params = names.planned(scale)
    addresses = names.chosen(params, scale, runs or [])
    settings = params.scale[scale]
    asked = asked_runs(scale, settings.data, params.planned(scale), addresses, parallel=settings.parallel)
    chosen = share_of(asked, shard)
    commit()  # git's complaints are printed here, and not by each worker
    left = [run for run in chosen if not run.ended]
    if left and settings.parallel:
        from stemrepro.training.devices import first, join

        join(left[0])
        if not first():
            train_runs(left, settings.workers, replace)
            return
    tracked = [] if untracked else sorted({str(run.address) for run in left})
    with followed(scale, tracked) if tracked else nullcontext():
        train_runs(left, settings.workers, replace, len(chosen) - len(left))
    for run in chosen:
        if (step := run.diverged) is not None:
            print(
                f"{run} diverged: its loss is NaN or infinite from step {step} on; claims about it will say so",
                file=sys.stderr,
            )
    print(losses_of_runs(chosen, RUNS / scale))


@app.command()
def adopt(
    archive: Annotated[Path, typer.Argument(help="a tar file of runs/SCALE and scores/SCALE")],
    scale: Scale = "laptop",
) -> None:
    """Take in runs and scores that another machine made of the same recipes, text and code."""
    from stemrepro.pipeline.adopt import adopt as take_in

    taken, refused = take_in(names.planned(scale), scale, archive)
    print(f"{len(taken)} runs and scores of the archive are here now")
    for sentence in refused:
        print(f"refused: {sentence}", file=sys.stderr)
    if refused:
        raise typer.Exit(1)


@app.command()
def evaluate(
    runs: Addresses = None,
    scale: Scale = "laptop",
    part: Annotated[str | None, typer.Option(help="only this part", **names.one_of("part", PARTS))] = None,
) -> None:
    """Score runs that aren't scored yet: validation losses, benchmarks through lm-eval, angles between FFN vectors."""
    from stemrepro.cli.summary import losses_of_scores
    from stemrepro.pipeline.score import evaluate as score

    params = names.planned(scale)
    chosen = names.chosen(params, scale, runs or [])
    os.environ.setdefault("HF_HUB_OFFLINE", "0" if params.scale[scale].benchmarks.hub else "1")
    for name in PARTS if part is None else (part,):
        (SCORES / scale / name).mkdir(parents=True, exist_ok=True)  # DVC needs it also where no arm is to be scored
        new, total = score(params, scale, name, chosen)
        where = f"; they are in {SCORES / scale / name}/" if total else ""
        print(f"{name}: {new} of {total} arms were scored, the others were up to date{where}")
    if part in (None, "losses"):
        print(losses_of_scores(list(chosen), SCORES / scale / "losses"))


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
    names.check_sweep(file)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rich.console import Console

    from stemrepro.measures.catalog import load
    from stemrepro.sweeps.search import run_sweep

    run_sweep(file, load(), scale, DATA / scale / "blocks", RESULTS, workers, worker, Console())
