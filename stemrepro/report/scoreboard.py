"""The pages with every claim: index.html for people, README.md the same as a table, claims.csv the same as data. All follow from
verdicts.json and the figures alone."""

import ast
import base64
import csv
import io
import math
import os
import re
from collections import Counter
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from stemrepro.book import load
from stemrepro.claims import NOT_TESTABLE, VERDICTS
from stemrepro.errors import UserError
from stemrepro.files import atomic_write
from stemrepro.paper import Paper
from stemrepro.recipe import ORIGINS, Recipe
from stemrepro.report.drawing import COLOUR, axis, drawing
from stemrepro.report.long_end import OPEN, OTHER, SAME, LongEnd, agreement, beside, counted, long_end
from stemrepro.report.verdicts import CONTROL_WORDS, read_verdicts, tally, tally_table, word

MEANING = {
    "reproduced": "the effect is there, larger than what counts, and of the paper's size; of a number: it is the paper's",
    "direction only": "the effect has the claimed sign; its size is not shown, or can't be expected at this scale",
    "contradicted": "the effect has the opposite sign, or is shown to be smaller than what counts; of a number: it is another",
    "inconclusive": "our runs can't tell",
    "not testable at this scale": "a precondition fails, whatever the contrast says",
}
SURE = {"read": "", "inferred": "computed: ", "secondary": "second-hand: ", "figure": "read off an image: "}


def number(value: float, sign: bool = True) -> str:
    """Three decimals below 10, else fewer; with a sign for effects."""
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:{'+' if sign else ''}.{digits}f}"


def printed(row: dict, value: float, more: int = 0) -> str:
    """A number of an exact claim, with the digits that its rounding or the paper's own number has, and `more`; counts are whole."""
    given = f"{row['paper']['value']:g}".partition(".")[2]
    digits = max(len(given), round(-math.log10(2 * row["smallest_effect"]))) + more
    return f"{value:.0f}" if value == int(value) and not given else f"{value:.{digits}f}"


def ours(row: dict) -> str:
    """Our number with its interval."""
    if row["ours"] is None:
        return "-"
    value = printed(row, row["ours"], 2) if row["kind"] == "exact" else number(row["ours"])
    level = "" if row["level"] is None else f" at {100 * row['level']:.3g}%"
    interval = "" if row["ci_low"] is None else f" ({number(row['ci_low'])} to {number(row['ci_high'])}{level})"
    return f"{value}{interval} {row['unit']}"


def paper(row: dict) -> str:
    """The paper's number."""
    if not row["paper"]:
        return "no number" if row["origin"] == "paper" else "not in the paper"
    value, unit = row["paper"]["value"], row["paper"]["unit"]
    return f"{printed(row, value) if row['kind'] == 'exact' else number(value)} {unit}"


def source(row: dict) -> str:
    """Where the paper's number is from and how sure that is."""
    return f"{SURE[row['paper']['confidence']]}{row['paper']['source']}" if row["paper"] else ""


def contrast(row: dict) -> str:
    """Arms and metric in short."""
    arms = " - ".join(dict.fromkeys(row["arms"]))
    return f"{arms}, {row['metric']}" if arms else row["metric"]


def evidence(row: dict) -> str:
    """Seeds, and both errors where there are two."""
    if row["kind"] == "exact":
        return "computed, no chance involved"
    if row["ours"] is None:
        return "not measured"
    words = [f"{row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"]
    if row["seed_se"]:
        words.append(f"error between seeds {row['seed_se']:.3g}")
    if row["item_se"]:
        words.append(f"between items {row['item_se']:.3g}")
    if row.get("own_rate") is not None:
        words.append(f"at own best learning rates {number(row['own_rate'])}")
    if row.get("official_start") is not None:
        same = "the same sign" if row["official_start_agrees"] else "the same sign is not shown"
        words.append(f"at the official start {number(row['official_start'])} ({same})")
    return ", ".join(words)


def at_long_end(row: dict, ends: dict[tuple[str, str], LongEnd]) -> str:
    """The same comparison at the ladder's last rung, in words; empty where it has none."""
    if not (end := beside(row, ends)):
        return ""
    effect = f"{number(end.mean)} ({number(end.low)} to {number(end.high)})"
    return f"after {end.tokens_a_parameter:.0f} tokens a parameter (ladder) {effect}: {agreement(row, end)}"


def agreement_words(rows: list[dict], ends: dict[tuple[str, str], LongEnd]) -> str:
    """How often a page's claims agree with the ladder's last rung; empty where none can be compared."""
    if not (counts := counted(rows, ends)):
        return ""
    tokens = next(iter(ends.values())).tokens_a_parameter
    return (
        f"{counts.total()} of these claims compare two arms that the ladder trained for {tokens:.0f} tokens a parameter, the paper's ratio. "
        f"Pointing the same way there: {counts[SAME]}; the other way: {counts[OTHER]}; open in one of the two: {counts[OPEN]} (by 95% intervals)."
    )


def rows_of(results: Path, scale: str, name: str) -> list[dict]:
    """A recipe's verdicts at a scale, primary claims first.

    Raises:
        UserError: there are none, or they are damaged.
    """
    path = results / scale / name / "verdicts.json"
    if not path.exists():
        raise UserError(f"{path} is missing; run 'dvc repro' for scale '{scale}'")
    return sorted(read_verdicts(path), key=lambda row: not row["primary"])


def paper_items(text: str) -> list[str]:
    """The tables and figures of the paper that a text names, one by one: "Tables 5 and 6" are "table 5" and "table 6"."""
    found = re.finditer(r"\b(Tab|Fig)[a-z]*\.?\s+(\d+\w?(?:(?:,\s*|\s+and\s+)\d+\w?)*)", text)
    kinds = {"Tab": "table", "Fig": "fig"}
    return list(
        dict.fromkeys(
            f"{kinds[kind]} {n}" for kind, many in (m.groups() for m in found) for n in re.findall(r"\d+\w?", many)
        )
    )


def multiples(row: dict) -> float:
    """An effect in multiples of the smallest that counts, to sort by; of exact claims and those without a number 0."""
    return 0.0 if row["ours"] is None or row["kind"] == "exact" else round(row["ours"] / row["smallest_effect"], 3)


def caption(name: str, recipe: Recipe, rows: list[dict]) -> str:
    """What a figure draws, by the first sentence of its analysis, which intervals, and how many seeds."""
    path = Path("analysis") / f"{name}.py"
    doc = ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None
    what = " ".join(
        (doc or "Each claim's effect with its interval, in multiples of the smallest that counts.")
        .split("\n\n")[0]
        .split()
    )
    seeds = sorted({row["seeds"] for row in rows if row["seeds"]})
    if not recipe.arms or not seeds:
        return f"{what} Computed: no chance, no seeds."
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"{what} Means over seeds with 95% intervals where bars are drawn ({counted} seeds); claims' own intervals stand below, corrected for their number."


def section(
    results: Path, scale: str, name: str, recipe: Recipe, out: Path, ends: dict[tuple[str, str], LongEnd]
) -> dict:
    """What a page shows of one recipe at one scale."""
    folder, rows = results / scale / name, rows_of(results, scale, name)
    try:
        svg = (folder / "figure.svg").read_bytes()
    except OSError as error:
        raise UserError(f"{folder}/figure.svg is missing; run 'dvc repro' for scale '{scale}'") from error
    size = re.search(rb'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    said = ", ".join(f"{count} {words}" for words, count in Counter(word(row) for row in rows).items())
    axes = {
        metric: axis([row for row in rows if row["metric"] == metric]) for metric in {row["metric"] for row in rows}
    }
    return {
        "name": name, "title": recipe.title, "paper_item": recipe.paper_item, "scale": scale, "runs": bool(recipe.arms),
        "folder": os.path.relpath(folder, out), "image": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        "width": round(float(size[1])), "height": round(float(size[2])),
        "alt": f"Figure of {name} at scale {scale}: {recipe.title}. Its claims: {said}.", "caption": caption(name, recipe, rows),
        "words": Counter(VERDICTS.index(row["verdict"]) for row in rows),
        "rows": [
            row | {
                "number": VERDICTS.index(row["verdict"]), "contrast": contrast(row), "paper": paper(row), "source": source(row),
                "ours": ours(row), "drawing": drawing(row, axes[row["metric"]], "interval"), "scale": scale, "recipe": name,
                "items": "|".join(paper_items(f"{recipe.paper_item}; {source(row)}")), "size": multiples(row),
                "evidence": "; ".join(filter(None, (evidence(row), at_long_end(row, ends)))),
                "word": word(row), "whose": ORIGINS[row["origin"]],
                "anchor": f"{name}-{scale}-{row['claim']}",
            }
            for row in rows
        ],
    }  # fmt: skip


def unspoken(numbers: Paper, sections: list[dict]) -> dict[str, str]:
    """Tables and figures of the paper that no claim's source names: {item: titles}."""
    said = " ".join(row["source"] for part in sections for row in part["rows"])
    found: dict[str, list[str]] = {}
    for block in numbers.blocks.values():
        if block.item not in said and block.item.startswith(("Table", "Fig")):
            found.setdefault(block.item, []).append(block.title)
    return {item: "; ".join(filter(None, titles)) for item, titles in found.items()}


def shown(scale: str, results: Path) -> list[tuple[str, str]]:
    """Recipes of a scale's page, each with the scale it was run at: this one, and those that share the page as far as they have verdicts.

    Raises:
        UserError: no such scale.
    """
    book = load()
    page = book.scale(scale).scoreboard
    scales = [scale, *(name for name, own in book.scales.items() if own.scoreboard == page and name != scale)]
    return [
        (name, at)
        for name in book.recipes
        for at in scales
        if name in book.at(at).recipes and (at == scale or (results / at / name / "verdicts.json").exists())
    ]


def every_row(scale: str, results: Path) -> list[dict]:
    """All claims of a scale's page."""
    return [
        row
        for name, at in shown(scale, results)
        if (results / at / name / "verdicts.json").exists()
        for row in rows_of(results, at, name)
    ]


def cell(text: str) -> str:
    """A text that may stand in a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def html(sections: list[dict], numbers: Paper, out: Path, ends: dict[tuple[str, str], LongEnd]) -> str:
    """The page index.html, complete in itself."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    rows = [row for part in sections for row in part["rows"]]
    root = os.path.relpath(".", out)
    return environment.get_template("scoreboard.html").render(
        sections=sections, meanings=MEANING, control_words=CONTROL_WORDS, colours=COLOUR, origins=ORIGINS, tally=tally(rows),
        counts=Counter(row["verdict"] for row in rows), total=len(rows), primary=[row for row in rows if row["primary"]],
        scales=list(dict.fromkeys(part["scale"] for part in sections)), root=f"{root}/", unspoken=unspoken(numbers, sections),
        agreed=agreement_words(rows, ends),
        refused=[row for row in rows if row["verdict"] == NOT_TESTABLE],
        missing=sum(cell["value"] is None for cell in numbers.listing()),
    )  # fmt: skip


def markdown(sections: list[dict], out: Path, ends: dict[tuple[str, str], LongEnd]) -> str:
    """The page README.md: the same claims as tables."""
    rule, predictions = os.path.relpath("docs/verdicts.md", out), os.path.relpath("docs/predictions.md", out)
    rows = [row for part in sections for row in part["rows"]]
    lines = [
        "# Scoreboard", "",
        f"Written by the pipeline; [index.html](index.html) is the same with filters (download it, or open it from a clone). A row "
        f"is a claim; its effect is signed so that the claim makes it positive; brackets hold the interval after the correction for "
        f"multiple claims, and its level ([how]({rule}); [what we had expected]({predictions})). Controls are questions of ours, and have "
        f"words of their own: one that comes out the other way says nothing against the paper.", "",
        *tally_table(rows), "", *([agreement_words(rows, ends), ""] if agreement_words(rows, ends) else []),
        "| verdict | of a control | means |", "|---|---|---|",
        *(f"| **{verdict}** | *{CONTROL_WORDS[verdict]}* | {MEANING[verdict]} |" for verdict in VERDICTS),
        "", "## Primary claims", "", "| claim | whose | ours | verdict |", "|---|---|---|---|",
        *(f"| {cell(row['sentence'])} | {row['whose']} | {cell(row['ours'])} | **{row['word']}** |" for row in rows if row["primary"]),
    ]  # fmt: skip
    for part in sections:
        where = f"scale `{part['scale']}`" if part["runs"] else "arithmetic: the same at every scale"
        lines += ["", f"## {part['title']}", "", f"Paper: {part['paper_item']}. Recipe `{part['name']}`, {where}.", "",
                  f"![{part['alt']}]({part['folder']}/figure.png)", "",
                  "| claim | whose | paper | ours | evidence | verdict | why |", "|---|---|---|---|---|---|---|"]  # fmt: skip
        for row in part["rows"]:
            mark = " (primary)" if row["primary"] else ""
            origin = f"<br>{cell(row['source'])}" if row["source"] else ""
            lines.append(
                f"| {cell(row['sentence'])}{mark}<br>`{row['claim']}`: {cell(row['contrast'])} | {row['whose']} | "
                f"{cell(row['paper'])}{origin} | {cell(row['ours'])} | {cell(row['evidence'])} | **{row['word']}** | {cell(row['reason'])} |"
            )
    return "\n".join(lines) + "\n"


COLUMNS = (
    "scale", "recipe", "claim", "sentence", "origin", "primary", "kind", "metric", "unit", "arms", "paper", "paper_source", "paper_confidence",
    "ours", "ci_low", "ci_high", "level", "smallest_effect", "seeds", "differences", "seed_se", "item_se", "p", "verdict", "word", "reason",
)  # fmt: skip
"""Of claims.csv."""


def table(found: list[tuple[str, dict]]) -> str:
    """claims.csv: a line a claim, of (recipe, row); lists are parted by spaces."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for recipe, row in found:
        given = row["paper"] or {}
        told = {"recipe": recipe, "arms": " ".join(row["arms"]), "word": word(row), "paper": given.get("value"),
                "paper_source": given.get("source"), "paper_confidence": given.get("confidence"),
                "differences": " ".join(f"{value:g}" for value in row.get("differences") or () if value is not None)}  # fmt: skip
        writer.writerow(row | told)
    return text.getvalue()


def write_scoreboard(scale: str, results: Path) -> Path:
    """Writes index.html, README.md and claims.csv of a scale, and of the scales that share its pages, into the scale's scoreboard folder, which is
    returned.

    Raises:
        UserError: no such scale, or a recipe that has no verdicts or no figure at it.
    """
    book = load()
    out = results / Path(book.scale(scale).scoreboard).relative_to("results")
    ends = long_end(results)
    sections = [section(results, at, name, book.recipes[name], out, ends) for name, at in shown(scale, results)]
    atomic_write(out / "index.html", html(sections, book.paper, out, ends))
    atomic_write(out / "README.md", markdown(sections, out, ends))
    atomic_write(
        out / "claims.csv",
        table([(name, row) for name, at in shown(scale, results) for row in rows_of(results, at, name)]),
    )
    return out
