"""The pages with every claim: index.html for people, README.md the same as a table, claims.csv the same as data. All follow from
verdicts.json and the figures alone.
"""

import ast
import base64
import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import ANALYSES
from stemrepro.config.catalog import Catalog
from stemrepro.config.paper import Paper
from stemrepro.config.recipe import ORIGINS, Recipe
from stemrepro.measures.catalog import load
from stemrepro.report.drawing import COLOUR, Line, axis, drawing
from stemrepro.report.ladder import OPEN, OTHER, SAME, Ladder, beside, counted, read_ladder
from stemrepro.report.verdicts import (
    CONTROL_WORDS,
    of_paper,
    out_of_reach,
    read_verdicts,
    tally,
    tally_table,
    untested,
    word,
)
from stemrepro.report.words import at_long_end, contrast, evidence, ours, paper, paper_items, source
from stemrepro.verdicts.robustness import LONG_END
from stemrepro.verdicts.rule import NOT_TESTABLE, UNTESTED, VERDICTS

MEANING = {
    "reproduced": "the effect is there, larger than what counts, and of the paper's size; of a number: it is the paper's",
    "direction only": "the effect has the claimed sign; its size is not shown, or can't be expected at this scale",
    "contradicted": "the effect has the opposite sign, or is shown to be smaller than what counts; of a number: it is another",
    "inconclusive": "our runs can't tell",
    "not testable at this scale": "a precondition fails, whatever the contrast says",
}


def agreement_words(rows: list[dict], ladder: Ladder) -> str:
    """Return how often a page's claims agree with the ladder's last rung; empty where none can be compared."""
    if not (counts := counted(rows, ladder)):
        return ""
    tokens = next(iter(ladder.values()))[-1].tokens_a_parameter
    return (
        f"{counts.total()} of these claims compare two arms that the ladder trained for {tokens:.0f} tokens a parameter, the paper's ratio. "
        f"Pointing the same way there: {counts[SAME]}; the other way: {counts[OTHER]}; open in one of the two: {counts[OPEN]} (by 95% intervals)."
    )


def at_other_scales(results: Path, scale: str, name: str, catalog: Catalog) -> dict[str, list[dict]]:
    """Return the same claims at other scales, as far as there are results: {claim: rows}. Those without an interval say nothing there."""
    found: dict[str, list[dict]] = {}
    for other in catalog.scales:
        if other != scale and name in catalog.at(other).recipes and (results / other / name / "verdicts.json").exists():
            for row in rows_of(results, other, name):
                if row["ci_low"] is not None:
                    found.setdefault(row["claim"], []).append(row)
    return found


def lines_beside(row: dict, ladder: Ladder, others: list[dict]) -> list[Line]:
    """Return what is drawn below a claim's own interval: the ladder's rungs by their tokens a parameter, and other scales."""
    rungs = [Line(f"{rung.tokens_a_parameter:.3g}", rung.mean, rung.low, rung.high) for rung in beside(row, ladder)]
    same = [other for other in others if other["unit"] == row["unit"] and row["ci_low"] is not None]
    return rungs + [Line(own["scale"], own["ours"], own["ci_low"], own["ci_high"]) for own in same]


def rows_of(results: Path, scale: str, name: str) -> list[dict]:
    """Return a recipe's verdicts at a scale, primary claims first.

    Raises:
        UserError: there are none, or they are damaged.
    """
    path = results / scale / name / "verdicts.json"
    if not path.exists():
        raise UserError(f"{path} is missing; 'make figures SCALE={scale}' draws it from the scores")
    return sorted(read_verdicts(path), key=lambda row: not row["primary"])


def multiples(row: dict) -> float | None:
    """Return an effect in multiples of the smallest that counts, to sort by; exact claims and those without a number have none."""
    return None if row["ours"] is None or row["kind"] == "exact" else round(row["ours"] / row["smallest_effect"], 2)


def caption(name: str, recipe: Recipe, rows: list[dict]) -> str:
    """Return what a figure draws, by the first sentence of its analysis, which intervals, and how many seeds."""
    path = ANALYSES / f"{name}.py"
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else None
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


def image(path: Path) -> dict:
    """Return an SVG with its size in points, as it stands in the page: panels one by one, which a phone can show."""
    svg = path.read_bytes()
    size = re.search(rb'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    data = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return {"data": data, "width": round(float(size[1])), "height": round(float(size[2])), "name": path.stem}


def section(results: Path, scale: str, name: str, catalog: Catalog, out: Path, ladder: Ladder) -> dict:
    """Return what a page shows of one recipe at one scale."""
    recipe, others = catalog.recipes[name], at_other_scales(results, scale, name, catalog)
    folder, rows = results / scale / name, rows_of(results, scale, name)
    if not (folder / "figure.svg").exists():
        raise UserError(f"{folder}/figure.svg is missing; 'make figures SCALE={scale}' draws it from the scores")
    drawn = [image(path) for path in sorted((folder / "panels").glob("*.svg")) or [folder / "figure.svg"]]
    items = paper_items(recipe.paper_item)
    own = of_paper(rows)
    controls = f"{len(rows) - len(own)} controls of ours"
    said = ", ".join(
        [*(f"{count} {verdict}" for verdict, count in Counter(row["verdict"] for row in own).items()), controls]
    )
    lines = {row["claim"]: lines_beside(row, ladder, others.get(row["claim"], [])) for row in rows}
    axes = {
        metric: axis(
            [row for row in rows if row["metric"] == metric],
            [line for row in rows if row["metric"] == metric for line in lines[row["claim"]]],
        )
        for metric in {row["metric"] for row in rows}
    }
    return {
        "name": name, "title": recipe.title, "paper_item": recipe.paper_item, "scale": scale, "runs": bool(recipe.arms),
        "folder": os.path.relpath(folder, out), "images": drawn,
        "alt": f"Figure of {name} at scale {scale}: {recipe.title}. Its claims: {said}.", "caption": caption(name, recipe, rows),
        "items": "|".join(items), "words": Counter(VERDICTS.index(row["verdict"]) for row in own), "own": len(own), "controls": len(rows) - len(own),
        "rows": [
            told(row) | {
                "number": VERDICTS.index(row["verdict"]), "contrast": contrast(row), "paper": paper(row), "source": source(row),
                "drawing": drawing(row, axes[row["metric"]], lines[row["claim"]]), "scale": scale, "recipe": name,
                "items": "|".join(item for item in paper_items(source(row)) if item not in items), "size": multiples(row),
                "evidence": "; ".join(
                    [evidence(row), *filter(None, [at_long_end(row, ladder)]),
                     *(f"at scale {own['scale']} {ours(own)}: {word(own)}" for own in others.get(row["claim"], []))]
                ),
                "anchor": f"{name}-{scale}-{row['claim']}",
            }
            for row in rows
        ],
    }  # fmt: skip


def by_reason(rows: Iterable[dict]) -> dict[str, list[dict]]:
    """Return rows by what is said against them, those that share most first."""
    found: dict[str, list[dict]] = {}
    for row in rows:
        found.setdefault(row["reason"], []).append(row)
    return dict(sorted(found.items(), key=lambda own: -len(own[1])))


def by_kind(rows: Iterable[dict]) -> dict[str, dict[str, list[dict]]]:
    """Return those that can't be tested, by kind and reason."""
    own = [row for row in rows if row["verdict"] == NOT_TESTABLE]
    found = {kind: by_reason(row for row in own if row["untested"] == kind) for kind in UNTESTED}
    return {kind: reasons for kind, reasons in found.items() if reasons}


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
    catalog = load()
    page = catalog.scale(scale).scoreboard
    scales = [scale, *(name for name, own in catalog.scales.items() if own.scoreboard == page and name != scale)]
    return [
        (name, at)
        for name in catalog.recipes
        for at in scales
        if name in catalog.at(at).recipes and (at == scale or (results / at / name / "verdicts.json").exists())
    ]


def every_row(scale: str, results: Path) -> list[dict]:
    """Return all claims of a scale's page."""
    return [
        row
        for name, at in shown(scale, results)
        if (results / at / name / "verdicts.json").exists()
        for row in rows_of(results, at, name)
    ]


def told(row: dict) -> dict:
    """Return a row with our number, the verdict and whose claim it is as they are written."""
    return row | {"ours": ours(row), "word": word(row), "whose": ORIGINS[row["origin"]]}


def primary_table(rows: list[dict]) -> list[str]:
    """Return the primary ones of `told` rows, as lines of a Markdown table."""
    return [
        "| claim | whose | ours | verdict |",
        "|---|---|---|---|",
        *(f"| {cell(row['sentence'])} | {row['whose']} | {cell(row['ours'])} | **{row['word']}** |" for row in rows if row["primary"]),
    ]  # fmt: skip


def cell(text: str) -> str:
    """Return a text that may stand in a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def whose(numbers: Paper) -> str:
    """Return where the paper's numbers are from, and what that means for its main table."""
    score, size, padded = (
        numbers.value(f"{cell}/openbookqa")
        for cell in ("table-3-350m/stem-full", "test-sizes/items", "test-sizes/padded")
    )
    return (
        f"Nobody here has read the paper's PDF. Its numbers are from its abstract and the authors' blog, README and code, from images, and from other "
        f"people's notes; the source stands beside each. Its Table 3 appears to come from two test-set sizes: STEM full's {score:.2f}% in "
        f"OpenBookQA is {score * padded / 100:.0f} right answers of {padded:.0f}, and no whole number of the test's {size:.0f} ({score * size / 100:.2f})."
    )


def html(sections: list[dict], numbers: Paper, out: Path, ladder: Ladder) -> str:
    """Return the page index.html, complete in itself."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    rows = [row for part in sections for row in part["rows"]]
    root = os.path.relpath(".", out)
    page = environment.get_template("scoreboard.html").render(
        sections=sections, meanings=MEANING, control_words=CONTROL_WORDS, colours=COLOUR, origins=ORIGINS, tally=tally(rows),
        counts=Counter(row["verdict"] for row in of_paper(rows)), controls=tally(rows)["control"], primary=[row for row in rows if row["primary"]],
        scales=list(dict.fromkeys(part["scale"] for part in sections)), root=f"{root}/", unspoken=unspoken(numbers, sections),
        agreed=agreement_words(rows, ladder),
        refused={"The paper's claims": by_kind(of_paper(rows)), "Controls of ours": by_kind(row for row in rows if row["origin"] == "control")},
        reach=out_of_reach(rows).replace("*", ""), untested={origin: untested([row for row in rows if row["origin"] == origin]) for origin in ORIGINS},
        whose=whose(numbers),
        missing=sum(cell["value"] is None for cell in numbers.listing()),
    )  # fmt: skip
    return page.replace("&#39;", "'")  # attributes stand in double quotes


def markdown(sections: list[dict], numbers: Paper, out: Path, ladder: Ladder) -> str:
    """Return the page README.md: the same claims as tables."""
    rule, predictions = os.path.relpath("docs/verdicts.md", out), os.path.relpath("docs/predictions.md", out)
    rows = [row for part in sections for row in part["rows"]]
    lines = [
        "# Scoreboard", "",
        f"Written by the pipeline; [index.html](index.html) is the same with filters (download it, or open it from a clone). A row "
        f"is a claim; its effect is signed so that the claim makes it positive; brackets hold the interval after the correction for "
        f"multiple claims, and its level ([how]({rule}); [what we had expected]({predictions})). Controls are questions of ours, and have "
        f"words of their own: one that comes out the other way says nothing against the paper.", "",
        whose(numbers), "", *tally_table(rows), "", out_of_reach(rows), "", *([agreement_words(rows, ladder), ""] if agreement_words(rows, ladder) else []),
        "| verdict | of a control | means |", "|---|---|---|",
        *(f"| **{verdict}** | *{CONTROL_WORDS[verdict]}* | {MEANING[verdict]} |" for verdict in VERDICTS),
        "", "## Primary claims", "", *primary_table(rows),
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
    "scale", "recipe", "claim", "sentence", "origin", "primary", "kind", "metric", "unit", "arms", "paper", "paper_unit", "paper_source", "paper_confidence",
    "ours", "ci_low", "ci_high", "level", "smallest_effect", "seeds", "differences", "seed_se", "item_se", "p", "verdict", "word", "untested", "reason",
)  # fmt: skip
"""Of claims.csv."""


def table(found: list[tuple[str, dict]]) -> str:
    """claims.csv: a line a claim, of (recipe, row); lists are parted by spaces."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for recipe, row in found:
        given = row["paper"] or {}
        told = {"recipe": recipe, "arms": " ".join(row["arms"]), "word": word(row), "paper": given.get("value"), "paper_unit": given.get("unit"),
                "paper_source": given.get("source"), "paper_confidence": given.get("confidence"),
                "differences": " ".join(f"{value:g}" for value in row.get("differences") or () if value is not None)}  # fmt: skip
        writer.writerow(row | told)
    return text.getvalue()


def claims_table(scale: str, results: Path) -> str:
    """claims.csv of a scale's pages, as far as there are verdicts; UserError where these are damaged."""
    there = [(name, at) for name, at in shown(scale, results) if (results / at / name / "verdicts.json").exists()]
    return table([(name, row) for name, at in there for row in rows_of(results, at, name)])


def write_scoreboard(scale: str, results: Path) -> Path:
    """Write index.html, README.md and claims.csv of a scale, and of the scales that share its pages, into the scale's scoreboard folder, which is
    returned.

    Raises:
        UserError: no such scale, or a recipe that has no verdicts or no figure at it.
    """
    catalog = load()
    out = results / Path(catalog.scale(scale).scoreboard).relative_to("results")
    longest = catalog.scales.get(LONG_END.parts[0])
    ladder = read_ladder(results) if longest and longest.scoreboard == catalog.scale(scale).scoreboard else {}
    sections = [section(results, at, name, catalog, out, ladder) for name, at in shown(scale, results)]
    atomic_write(out / "index.html", html(sections, catalog.paper, out, ladder))
    atomic_write(out / "README.md", markdown(sections, catalog.paper, out, ladder))
    atomic_write(out / "claims.csv", claims_table(scale, results))
    return out
