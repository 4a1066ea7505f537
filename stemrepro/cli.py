"""The command line. Each command declares its options beside itself; heavy imports stay inside, so that each starts fast."""

import errno
import os
import subprocess
import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperGroup

from stemrepro.errors import UserError, unknown
from stemrepro.params import PARTS, Part
from stemrepro.work import DATA, RESULTS, RUNS, SCORES

FOLLOW_SECONDS = 30


class Commands(TyperGroup):
    """Commands whose failures are one sentence each."""

    def invoke(self, context: typer.Context) -> object:
        """Runs a command; bad input ends with exit code 2, Ctrl-C with 130."""
        try:
            return super().invoke(context)
        except UserError as error:
            sentence, code = str(error), 2
        except KeyboardInterrupt:
            sentence, code = "stopped; what is finished is kept, and the rest goes on from there next time", 130
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                sentence, code = f"no room left on the disk{where}; make some and run again", 2
            elif isinstance(error, PermissionError | IsADirectoryError | NotADirectoryError):
                sentence, code = (
                    f"{error.strerror.lower()}{where}; see what lies there and who may read and write it",
                    2,
                )
            else:
                raise
        print(f"stemrepro: {sentence}", file=sys.stderr)
        raise typer.Exit(code)


app = typer.Typer(
    name="stemrepro", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reproduces the STEM paper, claim by claim.",
)  # fmt: skip
Scale = Annotated[str, typer.Option(help="a file of recipes/scales/")]
Addresses = Annotated[
    list[str] | None, typer.Argument(metavar="[ARM[@POINT]]...", help="all that are planned when left out")
]


def _print_version(asked: bool) -> None:
    if asked:
        print(f"stemrepro {version('stemrepro')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def plan(
    scale: Scale = "laptop",
    recipe: Annotated[list[str] | None, typer.Option(help="only what this recipe needs; may be repeated")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="fail unless params.yaml and dvc.yaml follow from recipes/")
    ] = False,
    arms: Annotated[bool, typer.Option("--arms", help="print every arm with its counts; write nothing")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print no estimate")] = False,
) -> None:
    """Validates recipes/, writes params.yaml and dvc.yaml, and prints the estimate."""
    from stemrepro import plan as planning

    if check:
        from stemrepro.pipeline import write_stamps

        if recipe:
            raise UserError("--check takes what is planned as it is; leave --recipe out")
        book, params = planning.check()
        params.planned(scale)
        write_stamps(book, params, planning.RECIPES)
        return
    from rich.console import Console

    from stemrepro import estimate

    if arms:
        book = planning.load()
        estimate.show_arms(book, scale, list(book.arms), Console())
        return
    book, params = planning.write(scale, tuple(recipe or ()))
    if not quiet:
        estimate.show(book, params, Console())


@app.command()
def data(
    step: Literal["fetch", "corpus", "items", "tokenizer", "blocks", "vocabularies", "people", "mid", "counts"],
    mix: Annotated[str, typer.Option(help="data mix, for fetch, corpus and items")] = "text",
    scale: Annotated[str, typer.Option(help="scale, for the other steps")] = "laptop",
) -> None:
    """One step of the data's way: fetch, corpus, items, tokenizer, blocks; vocabularies, people and mid (of points); or counts, of the text alone."""
    from stemrepro.params import read_params

    params = read_params()
    if step in ("fetch", "corpus", "items"):
        if mix not in params.mix:
            raise unknown("mix", mix, params.mix, "params.yaml, what is planned,")
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
        return
    params.planned(scale)
    asked, folder = params.scale[scale], DATA / scale
    source = DATA / asked.data
    corpus = source / "corpus" / "corpus.parquet"
    if step == "tokenizer":
        from stemrepro.data.tokenizer import train_tokenizer

        train_tokenizer(corpus, asked.vocab, folder / "tokenizer.json")
    elif step == "vocabularies":
        from stemrepro.data.vocabularies import write_vocabularies

        write_vocabularies(corpus, list(asked.vocabularies), folder / "vocabularies")
    elif step == "people":
        from stemrepro.data.people import write_people

        write_people(params.mix[asked.data], list(asked.people), folder / "tokenizer.json", folder / "people")
    elif step == "mid":
        from stemrepro.data.blend import write_blend

        if (mid := asked.mid) is None:
            raise UserError(f"no recipe of scale '{scale}' goes on with a blend")
        card = RESULTS / scale / "data_card_mid.md"
        write_blend(mid.name, mid.mix, mid.tokens, corpus.parent, folder / "tokenizer.json", folder / "mid", card)
    elif step == "counts":
        from stemrepro.data.counting import write_counts

        write_counts(corpus, folder / "tokenizer.json", asked.counting, SCORES / scale / "text")
    else:
        from stemrepro.data.card import data_card
        from stemrepro.data.encoding import write_blocks

        write_blocks(corpus, folder / "tokenizer.json", folder / "blocks")
        data_card(source, folder / "blocks", RESULTS / scale / "data_card.md")


@app.command()
def train(
    runs: Addresses = None,
    scale: Scale = "laptop",
    untracked: Annotated[
        bool, typer.Option("--untracked", help="leave MLflow alone, which then need not be installed")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="remove runs that were made with other settings")] = False,
) -> None:
    """Trains all seeds of arms; finished runs return at once, interrupted ones resume."""
    from stemrepro.params import read_params
    from stemrepro.work import asked_runs, train_runs

    params = read_params()
    planned, asked = params.planned(scale), params.chosen(scale, runs or [])
    chosen = asked_runs(scale, params.scale[scale].data, planned, asked)
    command = [sys.executable, "-m", "stemrepro.cli", "track", "--follow", "--scale", scale, *(runs or [])]
    left = [run for run in chosen if not run.ended]
    # The follower ends when its input does, also when this is killed; Ctrl-C is for this one alone.
    followed = {"stdin": subprocess.PIPE, "start_new_session": True}
    with nullcontext() if untracked or not left else subprocess.Popen(command, **followed):
        train_runs(left, params.scale[scale].workers, replace, len(chosen) - len(left))
    for run in chosen:
        if (step := run.diverged) is not None:
            print(
                f"{run} diverged: its loss is no number from step {step} on; claims about it will say so",
                file=sys.stderr,
            )


@app.command()
def evaluate(
    runs: Addresses = None,
    scale: Scale = "laptop",
    part: Annotated[Part | None, typer.Option(help="only this")] = None,
) -> None:
    """Scores runs as far as that isn't done: validation losses, benchmarks through lm-eval, angles between FFN vectors."""
    from stemrepro.params import read_params
    from stemrepro.scoring import evaluate as score

    params = read_params()
    chosen = params.chosen(scale, runs or [])
    os.environ.setdefault("HF_HUB_OFFLINE", "0" if params.scale[scale].benchmarks.hub else "1")
    for name in PARTS if part is None else (part,):
        new, total = score(params, scale, name, chosen)
        print(f"{name}: {new} of {total} arms were scored, the others were up to date")


@app.command()
def analyse(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="all, and the page, when left out")
    ] = None,
    scale: Scale = "laptop",
) -> None:
    """Judges claims and draws figures from the scores, without training."""
    from rich.progress import track as progress

    from stemrepro.analyse import analyse as run
    from stemrepro.book import load

    for name in progress(recipes or list(load().at(scale).recipes), "analyses", transient=True):
        run(name, scale, SCORES, RESULTS)
    if not recipes:
        report(scale)


@app.command()
def track(
    runs: Addresses = None,
    scale: Scale = "laptop",
    follow: Annotated[bool, typer.Option("--follow", help="keep up with a training until the input ends")] = False,
) -> None:
    """Brings MLflow up to date with the run folders; rebuilds a deleted database."""
    import select

    from stemrepro.book import load
    from stemrepro.tracked import held, remember, sources, tracking_uri

    book = load()
    book.scale(scale)
    if not (known := None if follow or runs else held(scale)):
        from stemrepro.tracking import Tracker

        tracker, more, before = Tracker(scale, book, RUNS, SCORES, RESULTS), follow, sources(scale)
        while more:
            tracker.sync(*runs or ())
            more = not select.select([sys.stdin], [], [], FOLLOW_SECONDS)[0]
        count = tracker.sync(*runs or ())
        if follow:
            return
        if not count:
            named = f" of {', '.join(runs)}" if runs else ""
            raise UserError(
                f"{RUNS / scale} has no runs{named} to track; train some first ('make reproduce SCALE={scale}')"
            )
        known = count, tracker.page
        if not runs:
            remember(scale, *known, before)
    count, page = known
    print(f"{count} runs of scale '{scale}' are in {tracking_uri()}; 'make ui' shows them, arms side by side at")
    print(f"  {page}")


@app.command()
def paper(
    words: Annotated[
        list[str] | None, typer.Argument(help="words that a cell's name, item, title or source must hold")
    ] = None,
    confidence: Annotated[Literal["read", "inferred", "secondary", "figure"] | None, typer.Option()] = None,
    missing: Annotated[bool, typer.Option("--missing", help="only what was looked for and not found")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="comma-separated values")] = False,
) -> None:
    """Lists the paper's numbers with source and confidence; words filter them."""
    from rich.console import Console

    from stemrepro.paper import Paper
    from stemrepro.paper_table import find, show

    show(find(Paper(Path("recipes/paper.yaml")), words or [], confidence, missing), csv, Console())


@app.command()
def explain(
    claim: Annotated[str, typer.Argument(metavar="CLAIM", help="RECIPE/CLAIM, or the claim where one recipe has it")],
    scale: Annotated[str | None, typer.Option(help="a file of recipes/scales/ (default: the recipe's own)")] = None,
) -> None:
    """Says how a claim came to its verdict: differences seed by seed, the rule's steps, files and the command that makes it anew."""
    from stemrepro.book import load
    from stemrepro.estimate import estimate
    from stemrepro.explain import explain as told
    from stemrepro.explain import find
    from stemrepro.plan import make_params

    book = load()
    recipe, _, at = find(book, claim, scale)
    print(told(book, claim, at, RESULTS, SCORES, estimate(make_params(book, at, (recipe,)))))


@app.command()
def cost(
    shape: Annotated[str, typer.Option(help="a name of recipes/shapes.yaml, or a scale")],
    stem: Annotated[Literal["third", "half", "full"], typer.Option(help="layers replaced")] = "third",
    length: Annotated[int | None, typer.Option(min=1, help="tokens a sequence (default: the shape's)")] = None,
    batch: Annotated[int, typer.Option(min=1, help="sequences")] = 1,
    width: Annotated[int, typer.Option("--bytes", min=1, help="bytes a number")] = 2,
    distinct: Annotated[
        int | None, typer.Option(min=1, help="distinct tokens in the batch (default: a Zipf estimate)")
    ] = None,
    tflops: Annotated[float, typer.Option(min=1e-3, max=1e9, help="TFLOP/s that the device sustains")] = 400,
) -> None:
    """Parameters, FLOPs and bytes of a shape with and without STEM, in closed form."""
    from rich.console import Console

    from stemrepro.book import load
    from stemrepro.cost_table import show

    asked = {"shape": shape, "length": length, "batch": batch, "distinct": distinct, "tflops": tflops}
    show(load(), Console(), distinct is None, placement=stem, width=width, **asked)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="a file of recipes/sweeps/")],
    scale: Scale = "laptop",
    workers: Annotated[int, typer.Option(min=1, help="processes to start (default: this one alone)")] = 1,
    worker: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Searches fields of arms by Optuna on the tune split; start it again for another worker, or after a kill."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rich.console import Console

    from stemrepro.book import load
    from stemrepro.sweeps.search import run_sweep

    run_sweep(file, load(), scale, DATA / scale / "blocks", RESULTS, workers, worker, Console())


RunFolder = Annotated[Path, typer.Option("--run", help="a run's folder, runs/SCALE/POINT/ARM/seedK")]
Prompt = Annotated[str, typer.Option(help="what the model goes on from")]


@app.command()
def edit(
    run: RunFolder,
    source: Annotated[str, typer.Option("--from", help="the name in the prompt")],
    target: Annotated[str, typer.Option("--to", help="the name whose rows are read in its place")],
    prompt: Annotated[str, typer.Option(help="must hold the name; {} stands for it")] = "The capital of {} is",
    scheme: Annotated[
        str, typer.Option(help="for names of other lengths: left-pad, right-pad, copy, subset, average")
    ] = "auto",
    top: Annotated[int, typer.Option(min=1, help="next tokens to show")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="of each continuation")] = 12,
) -> None:
    """Reads another entity's rows at a name's places, and shows what the model says before and after."""
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # models this small gain nothing from more, and lose where others compute
    from rich.console import Console

    from stemrepro.evaluation.visit import Visitor
    from stemrepro.visit_table import show

    asked = prompt.replace("{}", source)
    show(Visitor(run, DATA).edit(asked, source, target, scheme, top, tokens), asked, source, target, Console())


@app.command()
def generate(
    run: RunFolder,
    prompt: Prompt,
    tokens: Annotated[int, typer.Option(min=1, help="at most so many")] = 40,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the most probable token")] = 0.0,
    top: Annotated[int, typer.Option(min=0, help="draw from so many tokens; 0: from all")] = 0,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
) -> None:
    """Continues a prompt with a trained run."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from stemrepro.evaluation.visit import Visitor
    from stemrepro.model.generate import greedy, sampled

    choose = sampled(temperature, top, seed) if temperature else greedy
    print(prompt + Visitor(run, DATA).generate(prompt, tokens, choose))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="a run's folder, runs/SCALE/POINT/ARM/seedK")],
    out: Annotated[Path, typer.Argument(metavar="OUT_FOLDER", help="a folder that isn't there yet")],
) -> None:
    """Writes a trained run as a folder that Hugging Face transformers loads."""
    from stemrepro.export.folder import export as write

    write(run, out, DATA, SCORES, RESULTS)
    print(f"written: {out}; its README.md says how to load it")


@app.command()
def report(scale: Scale = "laptop") -> None:
    """Writes the page with every claim of a scale."""
    from stemrepro.report.scoreboard import write_scoreboard

    out = write_scoreboard(scale, RESULTS)
    print(f"every claim: {out}/index.html, and as a table in {out}/README.md")


@app.command()
def prose() -> None:
    """Writes the numbers in README.md and docs/ anew from the results that they are bound to."""
    from stemrepro.prose import render

    changed = render(RESULTS)
    print(f"brought up to date: {', '.join(map(str, changed))}" if changed else "all numbers in prose are up to date")


@app.command("print")
def print_report() -> None:
    """Prints docs/report.md as docs/report.pdf, its numbers brought up to date before."""
    from stemrepro.printing import write_pdf
    from stemrepro.prose import render

    render(RESULTS)
    print(f"printed: {write_pdf(Path('docs/report.md'))}")


@app.command()
def verify(scale: Scale = "laptop") -> None:
    """Compares the results with the committed ones: exit code 0 if they are the same, 1 if not, 3 if no run was made here."""
    from rich.console import Console

    from stemrepro.verify import verify as compare

    raise typer.Exit(compare(scale, RESULTS, Console()))


new = typer.Typer(no_args_is_help=True, help="Writes an arm or a recipe to start from.")
app.add_typer(new, name="new")


@new.command("arm")
def new_arm(
    name: str,
    ffn: Annotated[
        str, typer.Option(help="a name of stemrepro/model/specs.py, or my/file.py:Class, which is written")
    ] = "stem",
) -> None:
    """Adds an arm to recipes/arms.yaml."""
    from stemrepro.skeletons import new_arm as write

    print(f"written: {', '.join(write(name, ffn))}")
    print(f"next: edit them, name '{name}' in a recipe ('stemrepro new recipe NAME dense {name}' writes one)")


@new.command("recipe")
def new_recipe(
    name: str,
    arms: Annotated[list[str], typer.Argument(metavar="ARM...", help="two or more; the claim is about the first two")],
) -> None:
    """Writes recipes/NAME.yaml."""
    from stemrepro.skeletons import new_recipe as write

    print(f"written: {', '.join(write(name, arms))}")
    print(f"next: edit its claim, then 'make reproduce SCALE=smoke RECIPE={name}'; every recipe has a forest plot,")
    print(f"  analysis/{name}.py with collect(measure) and draw(data, measure) gives it a figure of its own")


def main() -> None:
    """Runs a command; bad input ends with one sentence and exit code 2, Ctrl-C with one and exit code 130."""
    app()


if __name__ == "__main__":
    main()
