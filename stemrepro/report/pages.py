"""The pages of results: README.md with a page per question, claims.csv, and index.html, which is all of it in one file.

They follow from recipes/questions.yaml and from verdicts.json, data.csv and figures of results/<scale>/<recipe>/. Their
texts stand in the templates next to this file.
"""

import ast
import os
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import ANALYSES
from stemrepro.config.catalog import Catalog
from stemrepro.config.paper import Paper
from stemrepro.config.questions import Question, read_questions
from stemrepro.config.recipe import ORIGINS, Recipe
from stemrepro.measures.base import over
from stemrepro.measures.catalog import load
from stemrepro.report import words
from stemrepro.report.leaderboard import write_leaderboards
from stemrepro.report.page_parts import LEADERBOARD, VERDICTS, cell, folder_of, shown
from stemrepro.report.questions import answered
from stemrepro.report.verdicts import TALLIED, counted, not_attempted, read_verdicts, sizes, tally, tally_table
from stemrepro.verdicts.answer import ANSWERS
from stemrepro.verdicts.rule import CONTRADICTED, NOT_TESTED, SUPPORTED, UNDECIDED

MEANING = {
    SUPPORTED: "shown to be as claimed",
    CONTRADICTED: "the opposite is shown, or an effect too small to count, or another number than the claimed one",
    UNDECIDED: "our runs can't tell",
    NOT_TESTED: "not attempted here, or a precondition fails",
}
ASKED = ("scale", "recipe", "claim", "sentence", "origin", "kind", "metric", "unit", "arms")
PRINTED = ("paper", "paper_unit", "paper_source", "paper_confidence", "expected")
FOUND = ("ours", "ci_low", "ci_high", "ci99_low", "ci99_high", "smallest_effect", "seeds", "differences", "item_se")
COLUMNS = (*ASKED, *PRINTED, *FOUND, "method", "verdict", "size", "untested", "reason")
"""The columns of claims.csv."""


def every_row(scale: str | None, results: Path) -> list[dict[str, Any]]:
    """Return all claims of a scale's page, as far as they have verdicts; UserError where these are damaged."""
    return [
        row | {"recipe": name, "name": f"{name}/{row['claim']}", "id": f"{at}/{name}/{row['claim']}"}
        for name, at in shown(scale, results)
        if (results / at / name / VERDICTS).exists()
        for row in read_verdicts(results / at / name / VERDICTS)
    ]


def claims_table(scale: str | None, results: Path) -> str:
    """Return claims.csv of a scale's page, one line per claim; spaces separate the items of lists."""
    lines = []
    for row in every_row(scale, results):
        paper = row["paper"] or {}
        differences = [f"{value:g}" for value in row.get("differences") or () if value is not None]
        lists = {"arms": " ".join(row["arms"]), "differences": " ".join(differences), "paper": paper.get("value")}
        lines.append(row | lists | {f"paper_{key}": paper.get(key) for key in ("unit", "source", "confidence")})
    return str(pd.DataFrame(lines, columns=COLUMNS, dtype=object).to_csv(index=False))


def caption(name: str, recipe: Recipe, rows: list[dict[str, Any]]) -> str:
    """Return the caption of a figure: the first paragraph of its analysis, and how many seeds its intervals have."""
    path = ANALYSES / f"{name}.py"
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else None
    what = " ".join((doc or "Each claim's effect, in multiples of the smallest that counts.").split("\n\n")[0].split())
    if not recipe.arms:
        units = over(recipe)
        return f"{what} Intervals of 95% are over {units}." if units else f"{what} Computed: no chance, no seeds."
    seeds = sorted({row["seeds"] for row in rows if row["seeds"]}) or [recipe.seeds]
    return f"{what} Means over {' to '.join(map(str, sorted({seeds[0], seeds[-1]})))} seeds with 95% intervals."


def experiment(name: str, at: str, rows: list[dict[str, Any]], catalog: Catalog, results: Path) -> dict[str, Any]:
    """Return what the pages show of a recipe; UserError where it has no verdicts or no figure."""
    folder, recipe = results / at / name, catalog.recipes[name]
    for file in (VERDICTS, "figure.svg"):
        if not (folder / file).exists():
            raise UserError(f"{folder / file} is missing; 'make figures SCALE={at}' draws it from the scores")
    own = [row for row in rows if (row["recipe"], row["scale"]) == (name, at)]
    told = {"caption": caption(name, recipe, own), "counted": counted(own), "ranked": recipe.measure == LEADERBOARD}
    return {"name": name, "recipe": recipe, "scale": at} | told


def two_test_sets(numbers: Paper) -> str:
    """Say what the printed digits of the paper's main table tell of the test set that its scores come from."""
    score, size, padded = (
        numbers.value(f"{cell}/openbookqa")
        for cell in ("table-3-350m/stem-full", "test-sizes/items", "test-sizes/padded")
    )
    return (
        f"Table 3 appears to come from two test-set sizes: STEM full's {score:.2f}% in OpenBookQA is "
        f"{score * padded / 100:.0f} right answers of {padded:.0f}, and not a whole number of the test's {size:.0f} "
        f"({score * size / 100:.2f})."
    )


def questions_of(rows: list[dict[str, Any]], catalog: Catalog, results: Path) -> dict[str, dict[str, Any]]:
    """Return all questions with their answers; claims that are under none come last, under "others"."""
    asked = read_questions(catalog)
    named = {name for question in asked.values() for name in question.claims()}
    if others := tuple(dict.fromkeys(row["name"] for row in rows if row["name"] not in named)):
        name, label = "Claims that belong to no question", "recipes/questions.yaml names none of them"
        asked["others"] = Question(asked=name, label=label, also=others, panel="")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    return {
        key: answered(question, by_name, catalog, results)
        | {"figure": question.panel.partition("/")[0], "panel": question.panel.partition("/")[2]}
        for key, question in asked.items()
    }


def _way(start: Path, end: Path) -> str:
    """Return the way from a folder to another, as links begin with it: "", "../", "../../"."""
    way = Path(os.path.relpath(end, start)).as_posix()
    return "" if way == "." else f"{way}/"


def write_pages(results: Path, scale: str | None = None) -> Path:
    """Write the pages of all published scales, or those of a scale with pages of its own; return their folder.

    Raises:
        UserError: the scale is unknown, a question names an unknown claim, or a recipe has no verdicts or no figure.
    """
    catalog, out = load(), folder_of(scale, results)
    rows = every_row(scale, results)
    experiments: dict[str, dict[str, Any]] = {}
    for name, at in shown(scale, results):  # of several scales the first answers
        experiments.setdefault(name, experiment(name, at, rows, catalog, results))
    questions, counted_rows = questions_of(rows, catalog, results), rows + not_attempted(rows, catalog)
    about = {
        "questions": questions,
        "experiments": experiments,
        "not_attempted": [recipe for name, recipe in catalog.recipes.items() if name not in experiments],
        "answers": ANSWERS,
        "meanings": MEANING,
        "tallied": TALLIED,
        "origins": ORIGINS,
        "tally": tally(counted_rows),
        "tally_table": tally_table(counted_rows),
        "sizes": sizes(rows),
        "two_test_sets": two_test_sets(catalog.paper),
        "home": _way(out, results),
        "root": _way(out, Path()),
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (cell, words.ours, words.paper, words.source, words.contrast, words.evidence)
    environment.filters |= {function.__name__: function for function in filters}
    index, readme, question = map(environment.get_template, ("index.html.j2", "readme.md.j2", "question.md.j2"))
    atomic_write(out / "index.html", index.render(about))
    atomic_write(out / "README.md", readme.render(about))
    for path in (out / "questions").glob("*.md"):
        if path.stem not in questions:
            path.unlink()
    for key, one in questions.items():
        atomic_write(
            out / f"questions/{key}.md", question.render(about, one=one, home=_way(out / "questions", results))
        )
    atomic_write(out / "claims.csv", claims_table(scale, results))
    write_leaderboards(scale, results)
    return out
