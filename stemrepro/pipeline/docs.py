"""Numbers in prose, bound to the results: a number stands between two HTML comments, and the first says where it comes from.

    <!--laptop/rivals/verdicts.json::equal-flops::ours::.2f-->0.26<!--/-->                a field of a claim
    <!--ladder/token_ladder/data.csv::panel=gap;x=286.151;what=stem-full::value::.2f-->0.31<!--/-->   a cell of a figure's data
    <!--recipes/paper.yaml::table-3-1b/dense/average::value::.2f-->55.82<!--/-->          a cell of the paper
    <!--docs/performance.csv::measure=gather;what=rows in float32::ratio::.2f-->0.81<!--/-->   a cell of a table beside the prose; words too
    <!--docs/performance.csv::measure=gather::what;ours .1f;met::table-->...<!--/-->      its rows of a kind, as a table of these columns
    <!--laptop::scale::runs::d-->292<!--/-->                 runs of a scale; tokens: of each, parameters: of dense, both in millions; ratio: of these
    <!--laptop::tally-->...<!--/-->     the table of verdicts by origin; also primary, that of the primary claims, recipes, that by recipe,
                                       and stages, those of a plan as a flowchart

Two colons part them, as a bar would end a cell of a table. The last part is a format of Python's, behind "minus" where the sentence has the other sign than the number, "fewer" (x, a difference
of logarithms, as the share 1 - exp(-x)), or "millions". `render` writes what stands between.
"""

import csv
import math
import re
from collections.abc import Callable
from pathlib import Path

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.files import atomic_write, damaged
from stemrepro.config.address import MAIN, Address
from stemrepro.measures.catalog import load
from stemrepro.model.cost import parameter_counts
from stemrepro.pipeline.plan import make_params
from stemrepro.pipeline.stage_graph import mermaid
from stemrepro.report.scoreboard import every_row, primary_table, shown, told
from stemrepro.report.verdicts import out_of_reach, read_verdicts, recipe_table, tally_table, word

FILES = (Path("README.md"), Path("docs"))
"""Where bound numbers may stand: a file, or the Markdown files of a folder."""
BOUND = re.compile(r"<!--(?P<source>[^<>]*?::[^<>]*?)-->(?P<text>(?:(?!<!--).)*)<!--/-->", re.DOTALL)
OPENED = re.compile(r"<!--[^<>]*?::[^<>]*?-->")
TRANSFORMS: dict[str, Callable[[float], float]] = {
    "minus": lambda value: -value,
    "fewer": lambda value: 1 - math.exp(-value),
    "millions": lambda value: value / 1e6,
}


def _recipes(scale: str, results: Path) -> list[str]:
    recipes = load().recipes
    there = [(name, results / at / name / "verdicts.json") for name, at in shown(scale, results)]
    return recipe_table(
        {recipes[name].title: (recipes[name].paper_item, read_verdicts(path)) for name, path in there if path.exists()}
    )


TABLES: dict[str, Callable[[str, Path], list[str]]] = {
    "tally": lambda scale, results: [*tally_table(rows := every_row(scale, results)), "", out_of_reach(rows)],
    "primary": lambda scale, results: primary_table(list(map(told, every_row(scale, results)))),
    "recipes": _recipes,
    "stages": lambda scale, _: [mermaid(load(), scale)],
}


def _of_claim(path: Path, claim: str, field: str) -> object:
    rows = {row["claim"]: row for row in read_verdicts(path)}
    if claim not in rows:
        raise UserError(f"{path} has no claim '{claim}'")
    return word(rows[claim]) if field == "word" else rows[claim].get(field)


def _cell(text: str) -> float | str:
    """Return a number where it is one, else the words."""
    try:
        return float(text)
    except ValueError:
        return text


def _rows(path: Path, choice: str) -> list[dict[str, str]]:
    wanted = dict(part.partition("=")[::2] for part in choice.split(";"))
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if wanted.items() <= row.items()]
    except ValueError as error:
        raise damaged(path, error) from error


def _of_data(path: Path, choice: str, column: str) -> float | str:
    found = _rows(path, choice)
    if len(found) == 1 and found[0].get(column):
        return _cell(found[0][column])
    raise UserError(f"{path}: {len(found)} rows are {choice}, and one with a value in '{column}' is wanted")


def _table(path: Path, choice: str, columns: str) -> list[str]:
    """Return the rows that are `choice`, in columns "name format" separated by semicolons; what is empty stays so."""
    rows, shown_as = _rows(path, choice), [column.partition(" ")[::2] for column in columns.split(";")]
    if not rows:
        raise UserError(f"{path}: no row is {choice}")
    if lost := [name for name, _ in shown_as if name not in rows[0]]:
        raise unknown("column", lost[0], rows[0], str(path))
    lines = [
        " | ".join(name.replace("_", " ") for name, _ in shown_as),
        " | ".join("--:" if form else "---" for _, form in shown_as),
    ]
    lines += [
        " | ".join(format(_cell(row[name]), form) if row[name] else "" for name, form in shown_as) for row in rows
    ]
    return [f"| {line} |" for line in lines]


def _of_scale(name: str, field: str) -> float:
    planned = make_params(load(), name).planned(name)
    dense = planned[Address(MAIN, "dense")]
    known = {
        "runs": lambda: sum(len(own.trained) for own in planned.values()),
        "tokens": lambda: dense.training.tokens / 1e6,
        "parameters": lambda: parameter_counts(dense.model)["total"] / 1e6,
        "ratio": lambda: dense.training.tokens / parameter_counts(dense.model)["total"],
    }
    if field not in known:
        raise unknown("field", field, known, "a scale")
    return known[field]()


def _existing(file: str, results: Path) -> Path:
    """Return a file of the results, or one beside the prose."""
    path = Path(file) if file.startswith("docs/") else results / file
    if not path.exists():
        raise UserError(f"{path} is missing")
    return path


def _value(file: str, row: str, column: str, results: Path) -> object:
    if file == "recipes/paper.yaml":
        return load().paper.value(row)
    if row == "scale":
        return _of_scale(file, column)
    path = _existing(file, results)
    return _of_claim(path, row, column) if path.suffix == ".json" else _of_data(path, row, column)


def said(source: str, results: Path) -> str:
    """Return what a marker asks for, in words.

    Raises:
        UserError: there is no such file, row or column, or the number can't be written so.
    """
    parts = source.split("::")
    if parts[1:2] == ["scale"] or (len(parts) == 2 and parts[1] in TABLES):
        load().scale(parts[0])
    if len(parts) == 2 and parts[1] in TABLES:
        return "\n" + "\n".join(TABLES[parts[1]](parts[0], results)) + "\n"
    if len(parts) != 4:
        raise UserError(f"'{source}' is no marker: file::row::column::format")
    if parts[3] == "table":
        try:
            return "\n" + "\n".join(_table(_existing(parts[0], results), *parts[1:3])) + "\n"
        except ValueError as error:
            raise UserError(f"'{source}' can't be a table: {error}") from error
    value, (transform, _, form) = _value(*parts[:3], results), parts[3].rpartition(" ")
    try:
        return format(TRANSFORMS[transform](value) if transform else value, form)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{source}': {value!r} can't be written as '{parts[3]}'") from error


def rendered(text: str, results: Path) -> str:
    """Return a text with all bound numbers as they are now."""
    if (opened := len(OPENED.findall(text))) != (bound := len(BOUND.findall(text))):
        raise UserError(f"of {opened} numbers that are bound {opened - bound} lack their end, <!--/-->")
    return BOUND.sub(lambda found: f"<!--{found['source']}-->{said(found['source'], results)}<!--/-->", text)


def pages(places: tuple[Path, ...] = FILES) -> list[Path]:
    """Return the files that may hold bound numbers."""
    return [path for place in places for path in ([place] if place.is_file() else sorted(place.glob("*.md")))]


def render(results: Path, places: tuple[Path, ...] = FILES) -> list[Path]:
    """Bring bound numbers up to date; returns the files that changed.

    Raises:
        UserError: a marker asks for something that isn't there; then nothing is written.
    """
    changed = {}
    for path in pages(places):
        try:
            text = path.read_text(encoding="utf-8")
            new = rendered(text, results)
        except UnicodeDecodeError as error:
            raise UserError(f"{path} can't be read ({error})") from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        if new != text:
            changed[path] = new
    for path, new in changed.items():
        atomic_write(path, new)
    return list(changed)
