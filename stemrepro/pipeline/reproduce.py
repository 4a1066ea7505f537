"""All steps of a scale in one process, from sources to the page, each as far as it isn't done."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from stemrepro.common.files import sha256
from stemrepro.common.paths import ANALYSES, DATA, RECIPES, RESULTS, SCORES
from stemrepro.common.workers import Job, run_jobs
from stemrepro.config.address import Address
from stemrepro.config.catalog import Catalog
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.measures import store
from stemrepro.measures.base import measure_module, reads_text, study_of
from stemrepro.pipeline.plan import Plan, make_plan
from stemrepro.pipeline.runs import asked_runs, train
from stemrepro.pipeline.score import evaluate
from stemrepro.pipeline.steps import Step, do
from stemrepro.pipeline.study import run_study_steps, study_steps
from stemrepro.pipeline.text import counts, text_steps
from stemrepro.report.page_parts import folder_of, scales_of

RECORDS = ("arms", "model_cards", "paper", "shapes", "variants")
"""Files of recipes/ that every figure follows from."""


def studies_of(catalog: Catalog, recipes: Iterable[str]) -> list[str]:
    """Return the studies that recipes read."""
    found = (study_of(catalog.recipes[name]) for name in recipes)
    return [study for study in dict.fromkeys(found) if study]


def score(plan: Plan, addresses: Iterable[Address], kinds: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Score runs as far as they aren't; return by kind how many arms were, of how many."""
    os.environ.setdefault("HF_HUB_OFFLINE", "0" if plan.scale.benchmarks.hub else "1")
    return {kind: evaluate(plan, kind, list(addresses)) for kind in kinds}


def _hashes(paths: Iterable[Path]) -> list[list[str]]:
    return [[path.as_posix(), sha256(path)] for path in paths if path.is_file() and path.name != "provenance.json"]


def figure(catalog: Catalog, scale: str, name: str) -> Step:
    """Return the step that measures a recipe's claims at a scale, judges them and draws the figure."""
    recipe, out, scores = catalog.recipes[name], RESULTS / scale / name, SCORES / scale
    asked = [(kind, address) for address, kinds in recipe.scored().items() for kind in kinds]
    scored = [[kind, str(address), store.key_of(scores, kind, address)] for kind, address in asked]
    folders = filter(None, ["text" if reads_text(recipe) else "", study_of(recipe)])
    read = [path for folder in folders for path in sorted((scores / folder).glob("*"))]
    scales = filter(None, (scale, catalog.scale(scale).inherits))
    read += [RECIPES / f"{file}.yaml" for file in (*RECORDS, name, *(f"scales/{each}" for each in scales))]
    own = [path for path in (ANALYSES / f"{name}.py",) if path.exists()]
    code: tuple[str | Path, ...] = ("stemrepro.report.analyse", measure_module(recipe.measure).__name__, *own)
    files = tuple(out / file for file in ("data.csv", "figure.svg", "verdicts.json"))
    about, make = [scored, _hashes(read)], partial(analyse, name, None, scale)
    return Step(f"figure {name}", DATA / scale, files, about, code, (), make)


def analyse(name: str, report: object, scale: str, formats: tuple[str, ...] = ()) -> None:
    """Measure, judge and draw a recipe; see stemrepro.report.analyse."""
    from stemrepro.report import analyse  # matplotlib: a second that a process with nothing to draw can do without

    analyse.analyse(name, scale, SCORES, RESULTS, formats)


def analyse_all(names: list[str], scale: str, formats: tuple[str, ...] = ()) -> None:
    """Measure, judge and draw recipes, as many at a time as there are cores."""
    if len(names) == 1:
        analyse(names[0], None, scale, formats)
        return
    jobs = [Job(f"{__name__}:analyse", name, name, 1, {"scale": scale, "formats": formats}) for name in names]
    for _ in run_jobs(jobs, len(jobs), 1, ["stemrepro.report.analyse"], "figures"):
        pass


def write_metrics(catalog: Catalog, scale: str) -> None:
    """Write metrics/<scale>/, which 'dvc metrics show' lists, where recipes compare losses at the scale itself."""
    from stemrepro.report import metrics

    if metrics.compared_arms(catalog.at(scale)):
        metrics.write_metrics(catalog, scale, SCORES)


def page(scale: str) -> Step:
    """Return the step that writes the page of a scale: questions, every claim, and tables of ranks."""
    out = folder_of(scale, RESULTS)
    patterns = [f"{at}/*/{file}" for at in scales_of(scale) for file in ("verdicts.json", "*.svg")]
    read = [path for pattern in patterns for path in RESULTS.glob(pattern)]
    about = _hashes([*sorted(read), RECIPES / "questions.yaml"])

    def make() -> None:
        from stemrepro.report.pages import write_pages

        write_pages(RESULTS, scale)

    files = (out / "README.md", out / "index.html")
    return Step("page", DATA / scale, files, about, ("stemrepro.report.pages",), (), make)


def reproduce(
    catalog: Catalog, scale: str, recipes: tuple[str, ...], tell: Callable[[str], None], tracked: bool = True
) -> bool:
    """Do all steps of a scale, or of some of its recipes, each as far as it isn't done; tell whether one wasn't.

    Args:
        tell: called with a line for each part of the way.
        tracked: whether MLflow follows.

    Raises:
        UserError: bad recipes, or a step that fails; what is finished stays.
    """
    plan, names = make_plan(scale, recipes, catalog), recipes or tuple(catalog.at(scale).recipes)
    counted = any(reads_text(catalog.recipes[name]) for name in names)
    studies = study_steps(plan, studies_of(catalog, names))
    text = studies or (text_steps(plan) if plan.runs or counted else [])  # the paper's numbers alone need none
    made = [step.name for step in text if step.do()]
    tell(f"text: {', '.join(made) or 'nothing to do'}")
    runs = asked_runs(plan)
    left = sum(not run.ended for run in runs)
    train(plan, runs, replace=True, tracked=tracked)
    tell(f"train: {left} of {len(runs)} runs")
    if counted and counts(plan, text[2]).do():
        made.append("counts")
    scored = score(plan, plan.runs, SCORE_KINDS)
    made += [step.name for step in do(run_study_steps(plan, studies_of(catalog, names)))]
    lines = [f"{kind} {new} of {total}" for kind, (new, total) in scored.items() if total]
    tell(f"score: {', '.join(lines) or 'no'} arms")
    figures = [figure(catalog, scale, name) for name in names]
    undrawn = [step for step in figures if not step.done()]
    for step in undrawn:
        step.forget()
    analyse_all([step.name.removeprefix("figure ") for step in undrawn], scale)
    for step in undrawn:
        step.record()
    tell(f"figures: {len(undrawn)} of {len(figures)}")
    anew = bool(made or left or undrawn or any(new for new, _ in scored.values()))
    if anew:
        write_metrics(catalog, scale)
    if not recipes:
        tell(f"page: {'written' if page(scale).do() else 'nothing to do'}")
    return anew
