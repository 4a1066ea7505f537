"""Commands about results: verdicts, pages, comparisons, MLflow, and the paper's numbers."""

from typing import Annotated

import typer

from stemrepro.cli import names
from stemrepro.cli.base import Addresses, Scale, app
from stemrepro.common.errors import UserError, checked
from stemrepro.common.paths import RESULTS, RUNS, SCORES

FORMATS = ("pdf", "png")


@app.command()
def analyse(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE]...", help="all, and the page, when left out", autocompletion=names.recipes),
    ] = None,
    scale: Scale = "laptop",
    formats: Annotated[
        str, typer.Option("--format", metavar="KINDS", help="of figures alongside SVG: pdf, png, or pdf,png")
    ] = "",
) -> None:
    """Judge claims and draw figures from the scores, without training."""
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline.reproduce import analyse_all

    kinds = tuple(filter(None, formats.split(",")))
    for kind in kinds:
        checked("format", kind, FORMATS, "--format")
    analyse_all(recipes or list(load().at(scale).recipes), scale, kinds)
    print(f"figures and verdicts: {RESULTS / scale}/<recipe>/")
    if not recipes:
        metrics(scale)
        report(scale)


@app.command()
def metrics(scale: Scale = "laptop") -> None:
    """Write what 'dvc metrics show' lists: of each arm its loss, its gap to dense in the same seeds, and its cost."""
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline.reproduce import write_metrics

    write_metrics(load(), scale)


@app.command()
def report(
    scale: Annotated[
        str | None,
        typer.Option(help="with pages of its own (default: all published scales)", autocompletion=names.scales),
    ] = None,
) -> None:
    """Write the pages: questions with their answers, every claim, and ranks of methods."""
    from stemrepro.cli.summary import verdicts
    from stemrepro.report.pages import every_row, write_pages

    out = write_pages(RESULTS, scale)
    print(verdicts(every_row(scale, RESULTS), [out]))
    print(f"questions and every claim: {out}/README.md, and in one file {out}/index.html")


@app.command()
def verify(scale: Scale = "laptop") -> None:
    """Compare the results with the committed ones; exit with 0 if they are the same, 1 if not, 3 without runs."""
    from rich.console import Console

    from stemrepro.pipeline.verify import verify as compare

    checked("scale", scale, names.scales(), "recipes/scales/")
    raise typer.Exit(compare(scale, RESULTS, Console()))


@app.command()
def explain(
    claim: Annotated[
        str,
        typer.Argument(
            metavar="CLAIM", help="RECIPE/CLAIM, or the claim where one recipe has it", autocompletion=names.claims
        ),
    ],
    scale: Annotated[
        str | None, typer.Option(help="a file of recipes/scales/ (default: the recipe's)", autocompletion=names.scales)
    ] = None,
) -> None:
    """Explain a claim's verdict: differences by seed, the rule's steps, files, and the command that makes it anew."""
    from stemrepro.cli.estimate import estimate
    from stemrepro.measures.catalog import load
    from stemrepro.pipeline.plan import make_plan
    from stemrepro.report.explain import explain as explanation
    from stemrepro.report.explain import find

    catalog = load()
    recipe, _, at = find(catalog, claim, scale)
    print(explanation(catalog, claim, at, RESULTS, SCORES, estimate(make_plan(at, (recipe,), catalog))))


@app.command()
def cost(
    shape: Annotated[str, typer.Option(help="a name of recipes/shapes.yaml, or a scale", autocompletion=names.shapes)],
    stem: Annotated[
        str, typer.Option(help="layers replaced", **names.one_of("placement", ("third", "half", "full"), "--stem"))
    ] = "third",
    length: Annotated[int | None, typer.Option(min=1, help="tokens per sequence (default: the shape's)")] = None,
    batch: Annotated[int, typer.Option(min=1, help="sequences")] = 1,
    width: Annotated[int, typer.Option("--bytes", min=1, help="bytes per number")] = 2,
    distinct: Annotated[
        int | None, typer.Option(min=1, help="distinct tokens in the batch (default: a Zipf estimate)")
    ] = None,
    tflops: Annotated[float, typer.Option(min=1e-3, max=1e9, help="TFLOP/s that the device sustains")] = 400,
) -> None:
    """Print parameters, FLOPs and bytes of a shape with and without STEM, in closed form."""
    from rich.console import Console

    from stemrepro.cli.cost_table import cost_table
    from stemrepro.measures.catalog import load

    console = Console()
    console.print(cost_table(load(), shape, stem, length, batch, width, distinct, tflops))
    console.print("A multiply-add is 2 FLOPs; attention counts every query against every key; embeddings are untied.")
    if distinct is None:
        console.print("Distinct tokens: estimated by a Zipf law of independent draws; text has fewer (--distinct).")


@app.command()
def track(
    runs: Addresses = None,
    scale: Scale = "laptop",
    port: Annotated[int, typer.Option(min=1, max=65535, help="where 'make ui' is about to serve")] = 5000,
) -> None:
    """Bring MLflow up to date with run folders and scores, and print the address that shows them."""
    from stemrepro.measures.catalog import load
    from stemrepro.tracking.server import address, public, tracking_uri

    catalog = load()
    catalog.scale(scale)
    names.check_tracked(scale, runs or [])
    from stemrepro.tracking.mlflow_runs import track as bring_up_to_date  # imports MLflow, which takes seconds

    experiment, arms, count = bring_up_to_date(scale, catalog, runs or ())
    if not arms:
        named = f" of {', '.join(runs)}" if runs else ""
        remedy = f"train some first ('make reproduce SCALE={scale}')"
        raise UserError(f"{RUNS / scale} has no runs{named} to track, {SCORES / scale} no losses; {remedy}")
    print(f"{arms} arms and {count} runs of scale '{scale}' are in {public(tracking_uri())}; 'make ui' shows them at")
    print(f"  {address(experiment, port)}")


@app.command()
def docs() -> None:
    """Render the templates of docs/src to README.md and docs/, with the numbers of today's results."""
    from stemrepro.pipeline.docs import write_pages

    changed = write_pages(RESULTS)
    print(f"brought up to date: {', '.join(map(str, changed))}" if changed else "all pages are up to date")
