"""Commands about one trained run: edit, of a published model too, generate and export."""

import os
from pathlib import Path
from typing import Annotated

import typer

from stemrepro.cli import names
from stemrepro.cli.base import app
from stemrepro.common.errors import UserError
from stemrepro.common.paths import DATA, RESULTS, SCORES

OfRun = typer.Option("--run", help="a run's folder, runs/SCALE/VARIANT/ARM/seedK")
Trust = Annotated[
    bool,
    typer.Option("--trust", help="execute the file of a network that recipes/arms.yaml doesn't name; read it before"),
]


def _data_of(run: Path) -> Path:
    """Return the folder data/ that lies next to a run's runs/, as here, in another clone and in results/models/."""
    above = run.parents
    return above[4] / DATA if len(above) > 4 else DATA


@app.command()
def edit(
    source: Annotated[str, typer.Option("--from", help="the name in the prompt")],
    target: Annotated[str, typer.Option("--to", help="the name whose rows are read in its place")],
    prompt: Annotated[str, typer.Option(help="must hold the name; {} means the name")] = "The capital of {} is",
    scheme: Annotated[
        str, typer.Option(help="for names of other lengths: left-pad, right-pad, copy, subset, average")
    ] = "auto",
    top: Annotated[int, typer.Option(min=1, help="next tokens to show")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="of each continuation")] = 12,
    run: Annotated[Path | None, OfRun] = None,
    model: Annotated[
        str | None, typer.Option(help="a published model of recipes/models.yaml", autocompletion=names.keys("models"))
    ] = None,
    trust: Trust = False,
) -> None:
    """Read another entity's rows at a name's places, and show the model's output before and after."""
    if (run is None) == (model is None):
        raise UserError("give a trained run by --run, or a published model by --model; one of the two")
    if run is not None:
        names.check_run(run)
    # Models this small gain nothing from more, and lose where others compute.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rich.console import Console

    from stemrepro.cli.edit_table import show
    from stemrepro.evaluation.edit_session import EditSession

    console, text = Console(), prompt.replace("{}", source)
    if model is not None:
        from stemrepro.published.models import load
        from stemrepro.published.session import PublishedSession

        published = load(model)
        console.print(f"{published.label}; as it was published, nothing is trained")
        session: EditSession = PublishedSession(published)
    elif run is not None:
        session = EditSession(run, _data_of(run), trust)
    show(session.edit(text, source, target, scheme, top, tokens), text, source, target, console)


@app.command()
def generate(
    run: Annotated[Path, OfRun],
    prompt: Annotated[str, typer.Option(help="the text that the model continues")],
    tokens: Annotated[int, typer.Option(min=1, help="at most so many")] = 40,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the most probable token")] = 0.0,
    top: Annotated[int, typer.Option(min=0, help="draw from so many tokens; 0: from all")] = 0,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    trust: Trust = False,
) -> None:
    """Continue a prompt with a trained run."""
    names.check_run(run)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from stemrepro.evaluation.edit_session import EditSession
    from stemrepro.model.generate import greedy, sampled

    choose = sampled(temperature, top, seed) if temperature else greedy
    print(prompt + EditSession(run, _data_of(run), trust).generate(prompt, tokens, choose))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="a run's folder, runs/SCALE/VARIANT/ARM/seedK")],
    out: Annotated[Path, typer.Argument(metavar="OUT_FOLDER", help="a folder that doesn't exist yet")],
) -> None:
    """Write a trained run as a folder that Hugging Face transformers loads."""
    names.check_run(run)
    from stemrepro.convert.folder import export as write

    write(run, out, _data_of(run), SCORES, RESULTS)
    print(f"written: {out}; its README.md says how to load it")
