"""Pages from templates, with the numbers of today's results.

docs/src/NAME.md.j2 becomes docs/NAME.md, or the repository's README.md. Templates are Jinja2's. A claim or
estimate is named scale/recipe/name and a figure's data scale/recipe; a table in docs/ is named by its path.

    {{ effect("laptop/rivals/equal-flops") }}                            of a claim or an estimate: 0.22 (0.20 to 0.23)
    {{ effect("laptop/rivals/equal-flops", "seeds") | number(".0f") }}   another numeric field of a claim
    {{ verdict("laptop/rivals/equal-flops") }}                           its verdict
    {{ data("laptop/rivals", panel="FLOPs", what="dense-equal-flops") }} the number in the one row with these values
    {{ data("docs/kills.csv", "lost", resumed_from=16, died_after=19) }} a column other than "value"
    {{ table("docs/kills.csv", "aimed | lost .0f", resumed_from=16) }}   all rows with these values, in these columns
    {{ cell("table-3-1b/dense/average") }}                               a number of the paper (recipes/paper.yaml)
    {{ scale("laptop", "runs") | number(".0f") }}                        also dense's tokens, parameters,
                                                                         tokens_per_parameter, vocab, layers, width,
                                                                         sequence, batch and learning_rate
    {{ data("laptop/rivals", what="a") - data("laptop/rivals", what="b") }} a difference, without an interval
    {{ tally("laptop") }}                                                verdicts by origin
    {{ compared("laptop") }}                                             the paper's tested claims: paper, ours, verdict
    {{ tables("third", "llama-3.2-1b") }}                                parameters and memory of shapes with STEM

Filters that write take a format of Python's, ".2f" unless given. `number` writes a number without its interval,
`interval` the interval alone, `both` both. Other filters change a number and its interval: `minus` changes the sign,
`fewer` turns a difference of logarithms x into the share 1 - exp(-x), `millions` divides by a million.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from stemrepro.common.errors import UserError, checked, unknown
from stemrepro.common.files import atomic_write, damaged
from stemrepro.config.catalog import Catalog
from stemrepro.measures.catalog import load
from stemrepro.measures.costs import dense_and_stem
from stemrepro.model.cost import parameter_counts, row_bytes
from stemrepro.pipeline.plan import make_plan
from stemrepro.report.estimates import PANEL as ESTIMATES
from stemrepro.report.page_parts import cell as escaped
from stemrepro.report.pages import every_row
from stemrepro.report.verdicts import not_attempted, read_verdicts, sizes, tally_table
from stemrepro.report.words import ours, paper
from stemrepro.verdicts.rule import NOT_ATTEMPTED, NOT_TESTED

SOURCES = Path("docs/src")


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; its ends are NaN where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.value):
            raise UserError("the number is NaN")

    def __str__(self) -> str:
        return both(self)

    def __sub__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.value - other.value)


def number(estimate: Estimate, form: str = ".2f") -> str:
    """Write the number alone."""
    return format(estimate.value, form)


def interval(estimate: Estimate, form: str = ".2f") -> str:
    """Write the interval alone."""
    if math.isnan(estimate.low):
        raise UserError(f"{estimate.value} has no interval")
    return f"{estimate.low:{form}} to {estimate.high:{form}}"


def both(estimate: Estimate, form: str = ".2f") -> str:
    """Write the number, with its interval in brackets if it has one."""
    return number(estimate, form) + ("" if math.isnan(estimate.low) else f" ({interval(estimate, form)})")


def _turned(before: Estimate, change: Callable[[float], float]) -> Estimate:
    """Change a number and its interval by a monotonic function."""
    return Estimate(change(before.value), *sorted((change(before.low), change(before.high))))


def _minus(before: Estimate) -> Estimate:
    return _turned(before, operator.neg)


def _fewer(before: Estimate) -> Estimate:
    return _turned(before, lambda value: 1 - math.exp(-value))


def _millions(before: Estimate) -> Estimate:
    return _turned(before, lambda value: value / 1e6)


FILTERS: dict[str, Callable[..., str | Estimate]] = {"number": number, "interval": interval, "both": both}
FILTERS |= {"minus": _minus, "fewer": _fewer, "millions": _millions}


def _pick(what: str, name: str, choices: Mapping[str, Any], where: object) -> Any:
    return choices[checked(what, name, choices, str(where))]


class Numbers:
    """The functions of templates, over one folder of results. Each raises UserError for what is missing."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._verdicts = cache(read_verdicts)
        self._table = cache(partial(pd.read_csv, dtype=str, keep_default_na=False))
        self._plan = cache(lambda scale: make_plan(scale, catalog=self._catalog))

    @cached_property
    def _catalog(self) -> Catalog:
        return load()

    def _claims(self, recipe: str) -> dict[str, dict[str, Any]]:
        paths = {str(path.parent.relative_to(self._results)): path for path in self._results.glob("*/*/verdicts.json")}
        return {row["claim"]: row for row in self._verdicts(_pick("recipe", recipe, paths, self._results))}

    def effect(self, name: str, field: str = "ours") -> Estimate:
        """Return a number of a claim or an estimate: its effect with the interval, or another field of a claim."""
        recipe, _, key = name.rpartition("/")
        claims = self._claims(recipe)
        if key in claims:
            row = {field: value for field, value in claims[key].items() if value is not None}
        else:
            row = self._estimate(recipe, key, claims)
        ends = (float(row["ci_low"]), float(row["ci_high"])) if field == "ours" and "ci_low" in row else ()
        return Estimate(float(_pick("field", field, row, name)), *ends)

    def _estimate(self, recipe: str, key: str, claims: Iterable[str]) -> dict[str, str]:
        """Return the line of data.csv with an estimate; "value" and "count" are called as a claim's fields."""
        rows = self._table(self._results / recipe / "data.csv")
        rows = rows[rows["panel"] == ESTIMATES].set_index("what", drop=False)
        if key not in rows.index:
            raise unknown("claim or estimate", key, [*claims, *rows.index], recipe)
        row = rows.loc[key].rename({"value": "ours", "count": "seeds"})
        return row[row != ""].to_dict()

    def verdict(self, name: str) -> str:
        """Return a claim's verdict."""
        recipe, _, claim = name.rpartition("/")
        return _pick("claim", claim, self._claims(recipe), recipe)["verdict"]

    def cell(self, name: str) -> Estimate:
        """Return a number of the paper."""
        return Estimate(self._catalog.paper.value(name))

    def _rows(self, source: str, choice: dict[str, str | float]) -> pd.DataFrame:
        """Return the rows with the chosen values; numbers match to a part in a thousand."""
        path = Path(source) if source.startswith("docs/") else self._results / source
        if path.suffix != ".csv":
            path /= "data.csv"
        try:
            rows = self._table(path)
        except (OSError, ValueError) as error:
            raise damaged(path, error) from error
        for column, wanted in choice.items():
            cells = _pick("column", column, rows, path)
            numbers = pd.to_numeric(cells, errors="coerce")
            chosen = cells == wanted if isinstance(wanted, str) else np.isclose(numbers, wanted, rtol=1e-3)
            if not chosen.any():
                raise unknown(column, str(wanted), cells.unique(), str(path))
            rows = rows[chosen]
        return rows

    def data(self, source: str, column: str = "value", /, **choice: str | float) -> Estimate:
        """Return the number in the one row with the chosen values; "value" has an interval."""
        rows = self._rows(source, choice)
        if len(rows) > 1:
            differing = [name for name in rows if rows[name].nunique() > 1]
            raise UserError(f"{len(rows)} rows of {source} are {choice}: choose by {', '.join(differing)} too")
        row, value = rows.iloc[0], _pick("column", column, rows, source).iloc[0]
        ends = (float(row["ci_low"]), float(row["ci_high"])) if column == "value" and row.get("ci_low") else ()
        return Estimate(float(value), *ends)

    def table(self, source: str, columns: str, /, **choice: str | float) -> str:
        """Write all rows with the chosen values, in columns "name format | name | ..."; empty cells stay empty."""
        rows = self._rows(source, choice)
        heads = [part.strip().partition(" ")[::2] for part in columns.split("|")]
        cells = [
            [format(float(text), form) if text and form else text for text in _pick("column", name, rows, source)]
            for name, form in heads
        ]
        lines = [[name.replace("_", " ") for name, _ in heads], ["--:" if form else "---" for _, form in heads]]
        return "\n".join(f"| {' | '.join(line)} |" for line in [*lines, *zip(*cells, strict=True)])

    def scale(self, name: str, field: str) -> Estimate:
        """Return how many runs a scale has, or its shape and budget, which are those of its dense model."""
        planned = self._plan(name).runs
        dense = next(arm for address, arm in planned.items() if address.arm == "dense")  # where arms are compared
        tokens, parameters = dense.training.tokens, parameter_counts(dense.model)["total"]
        fields = {"tokens": tokens, "parameters": parameters, "tokens_per_parameter": tokens / parameters}
        fields["runs"] = sum(len(arm.trained) for arm in planned.values())
        fields |= {name: getattr(dense.training, name) for name in ("sequence", "batch", "learning_rate")}
        fields |= {name: getattr(dense.model, name) for name in ("vocab", "layers", "width")}
        return Estimate(_pick("field", field, fields, f"scale {name}"))

    def tables(self, placement: str, *shapes: str) -> str:
        """List parameters and training memory of shapes with STEM: weights, gradients and AdamW's two moments."""
        heads = ["shape", "dense", "tables", "dense in AdamW", "tables in AdamW", "rows of a token"]
        lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
        for name in shapes:
            dense, stem = dense_and_stem(_pick("shape", name, self._catalog.shapes, "recipes/shapes.yaml"), placement)
            counts = parameter_counts(dense)["total"] / 1e9, parameter_counts(stem)["tables"] / 1e9
            cells = [*(f"{count:.2f}B" for count in counts), *(f"{16 * count:.0f} GB" for count in counts)]
            lines.append(f"| {name} | {' | '.join(cells)} | {row_bytes(stem, 1) / 1e3:.0f} kB |")
        return "\n".join(lines)

    def tally(self, scale: str) -> str:
        """Count verdicts by origin, over the claims of a scale's page and those of recipes that were not run."""
        rows = every_row(scale, self._results)
        return "\n".join([*tally_table(rows + not_attempted(rows, self._catalog)), "", sizes(rows)])

    def compared(self, scale: str, related: Mapping[str, str]) -> str:
        """List the paper's claims that were attempted: the paper's number next to ours, and the verdict.

        `related`: what the paper has in another measure, by recipe/claim; UserError: there is no such claim.
        """
        rows = [row for row in every_row(scale, self._results) if row["origin"] != "control"]
        if lost := related.keys() - {f"{row['recipe']}/{row['claim']}" for row in rows}:
            raise UserError(f"compared: no claim of the paper is called {', '.join(sorted(lost))}")
        lines = ["| claim | paper | ours | seeds | tokens a parameter | verdict |", "|---|---|---|--:|--:|---|"]
        for row in rows:
            tested, exact = row["verdict"] != NOT_TESTED, row["kind"] == "exact"
            word = row["verdict"] if tested else f"{row['verdict']}: {row['untested']}"
            seeds = "-" if exact else str(row["seeds"])
            budget = "-" if exact else number(self.scale(row["scale"], "tokens_per_parameter"), ".0f")
            told = related.get(f"{row['recipe']}/{row['claim']}", paper(row))
            cells = [row["sentence"], told, ours(row) if tested else "-", seeds, budget, word]
            lines.append(f"| {' | '.join(map(escaped, cells))} |")
        return "\n".join(lines)

    def unattempted(self, scale: str) -> str:
        """List the paper's claims that nothing was run for, with the paper's number and where it stands."""
        lines = ["| claim | paper | its place | ours |", "|---|---|---|---|"]
        for row in not_attempted(every_row(scale, self._results), self._catalog):
            claim = row["claim"]
            printed = f"{claim.paper.value:+g} {claim.paper.unit}" if claim.paper else "not given"
            if claim.origin != "control":
                cells = [claim.sentence, printed, row["item"], NOT_ATTEMPTED]
                lines.append(f"| {' | '.join(map(escaped, cells))} |")
        return "\n".join(lines)


def render(results: Path, sources: Path = SOURCES) -> dict[Path, str]:
    """Render all templates, whose names pages have below their titles: {page: text}; UserError names file and line."""
    environment = Environment(
        loader=FileSystemLoader(sources), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    numbers = Numbers(results)
    environment.globals = {name: getattr(numbers, name) for name in dir(numbers) if not name.startswith("_")}
    environment.filters |= FILTERS
    pages = {}
    for path in sorted(sources.glob("*.md.j2")):
        try:
            title, _, text = environment.get_template(path.name).render().partition("\n")
        except (UserError, TemplateError, AttributeError, TypeError, ValueError) as error:
            lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
            raise UserError(f"{path}:{[1, *lines][-1]}: {error}") from error
        page = Path("docs" if path.stem != "README.md" else ".") / path.stem
        pages[page] = f"{title}\n<!-- generated from {path}: edit there -->\n{text}"
    return pages


def write_pages(results: Path) -> list[Path]:
    """Bring the pages up to date and return those that changed; UserError: a fault, and nothing is written."""
    pages = render(results)
    changed = [page for page, text in pages.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    for page in changed:
        atomic_write(page, pages[page])
    return changed
