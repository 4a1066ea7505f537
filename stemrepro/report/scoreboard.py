"""The pages with every claim: index.html for people, README.md the same as a table, claims.csv the same as data.

All follow from verdicts.json and the figures alone.
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
from stemrepro.report.ladder import OPEN, OTHER, SAME, Ladder, counted, read_ladder, rungs_of
from stemrepro.report.verdicts import (
    CONTROL_WORDS,
    of_paper,
    out_of_reach,
    read_verdicts,
    tally,
    tally_table,
    untested,
    verdict_label,
)
from stemrepro.report.words import at_long_end, contrast, evidence, ours, paper, paper_items, source
from stemrepro.verdicts.robustness import LONG_END
from stemrepro.verdicts.rule import NOT_TESTABLE, UNTESTED, VERDICTS

MEANING = {
    "reproduced": 'a number is the paper\'s, or an ordering, an equivalence or a "not better" is shown',
    "direction only": "the effect has the claimed sign; its size is not shown, or can't be expected at this scale",
    "contradicted": (
        "the effect has the opposite sign, or is shown to be smaller than what counts; of a number: it is another"
    ),
    "inconclusive": "our runs can't tell",
    "not testable at this scale": "a precondition fails, whatever the contrast says",
}


def agreement_words(rows: list[dict], ladder: Ladder) -> str:
    """Say how often a page's claims agree with the ladder's last rung; empty where none can be compared."""
    counts = counted(rows, ladder)
    if not counts:
        return ""
    tokens = next(iter(ladder.values()))[-1].tokens_a_parameter
    return (
        f"{counts.total()} of these claims compare two arms that the ladder trained for {tokens:.0f} tokens per "
        f"parameter, the paper's ratio. Pointing the same way there: {counts[SAME]}; the other way: {counts[OTHER]}; "
        f"open in one of the two: {counts[OPEN]} (by 95% intervals)."
    )


def at_other_scales(results: Path, scale: str, name: str, catalog: Catalog) -> dict[str, list[dict]]:
    """Return the same claims at other scales with results: {claim: rows}, without rows that have no interval."""
    by_claim: dict[str, list[dict]] = {}
    for other in catalog.scales:
        if other != scale and name in catalog.at(other).recipes and (results / other / name / "verdicts.json").exists():
            for row in rows_of(results, other, name):
                if row["ci_low"] is not None:
                    by_claim.setdefault(row["claim"], []).append(row)
    return by_claim


def comparison_lines(row: dict, ladder: Ladder, others: list[dict]) -> list[Line]:
    """Return the lines below a claim's own interval: the ladder's rungs by tokens per parameter, and other scales."""
    rungs = [Line(f"{rung.tokens_a_parameter:.3g}", rung.mean, rung.low, rung.high) for rung in rungs_of(row, ladder)]
    same = [other for other in others if other["unit"] == row["unit"] and row["ci_low"] is not None]
    return rungs + [Line(other["scale"], other["ours"], other["ci_low"], other["ci_high"]) for other in same]


def rows_of(results: Path, scale: str, name: str) -> list[dict]:
    """Return a recipe's verdicts at a scale, primary claims first.

    Raises:
        UserError: the verdicts are missing or damaged.
    """
    path = results / scale / name / "verdicts.json"
    if not path.exists():
        raise UserError(f"{path} is missing; 'make figures SCALE={scale}' draws it from the scores")
    return sorted(read_verdicts(path), key=lambda row: not row["primary"])


def multiples(row: dict) -> float | None:
    """Return an effect in multiples of the smallest that counts, to sort by.

    Exact claims and those without a measured effect have none.
    """
    return None if row["ours"] is None or row["kind"] == "exact" else round(row["ours"] / row["smallest_effect"], 2)


def caption(name: str, recipe: Recipe, rows: list[dict]) -> str:
    """Return the caption of a figure: the first paragraph of its analysis, which intervals, and how many seeds."""
    path = ANALYSES / f"{name}.py"
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else None
    doc = doc or "Each claim's effect with its interval, in multiples of the smallest that counts."
    what = " ".join(doc.split("\n\n")[0].split())
    seeds = sorted({row["seeds"] for row in rows if row["seeds"]}) or [recipe.seeds]
    if not recipe.arms:
        return f"{what} Computed: no chance, no seeds."
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"{what} Means over seeds with 95% intervals where bars are drawn ({count} seeds); "
        "claims' own intervals stand below, corrected for their number."
    )


def image(path: Path) -> dict:
    """Return an SVG as data for the page, with its size in points."""
    svg = path.read_bytes()
    size = re.search(rb'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    data = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return {"data": data, "width": round(float(size[1])), "height": round(float(size[2])), "name": path.stem}


def section(results: Path, scale: str, name: str, catalog: Catalog, out: Path, ladder: Ladder) -> dict:
    """Return what a page shows of one recipe at one scale."""
    recipe = catalog.recipes[name]
    folder, rows = results / scale / name, rows_of(results, scale, name)
    others = at_other_scales(results, scale, name, catalog)
    if not (folder / "figure.svg").exists():
        raise UserError(f"{folder}/figure.svg is missing; 'make figures SCALE={scale}' draws it from the scores")
    drawn = [image(path) for path in sorted((folder / "panels").glob("*.svg")) or [folder / "figure.svg"]]
    items = paper_items(recipe.paper_item)
    claims = of_paper(rows)
    counts = [f"{count} {verdict}" for verdict, count in Counter(row["verdict"] for row in claims).items()]
    summary = ", ".join([*counts, f"{len(rows) - len(claims)} controls of ours"])
    lines = {row["claim"]: comparison_lines(row, ladder, others.get(row["claim"], [])) for row in rows}
    axes = {
        metric: axis(
            [row for row in rows if row["metric"] == metric],
            [line for row in rows if row["metric"] == metric for line in lines[row["claim"]]],
        )
        for metric in {row["metric"] for row in rows}
    }
    return {
        "name": name,
        "title": recipe.title,
        "paper_item": recipe.paper_item,
        "scale": scale,
        "runs": bool(recipe.arms),
        "folder": os.path.relpath(folder, out),
        "images": drawn,
        "alt": f"Figure of {name} at scale {scale}: {recipe.title}. Its claims: {summary}.",
        "caption": caption(name, recipe, rows),
        "items": "|".join(items),
        "counts": Counter(VERDICTS.index(row["verdict"]) for row in claims),
        "claims": len(claims),
        "controls": len(rows) - len(claims),
        "estimates": len(recipe.estimates),
        "rows": [
            labelled(row) | {
                "number": VERDICTS.index(row["verdict"]),
                "contrast": contrast(row),
                "paper": paper(row),
                "source": source(row),
                "drawing": drawing(row, axes[row["metric"]], lines[row["claim"]]),
                "scale": scale,
                "recipe": name,
                "items": "|".join(item for item in paper_items(source(row)) if item not in items),
                "size": multiples(row),
                "evidence": "; ".join(all_evidence(row, ladder, others.get(row["claim"], []))),
                "anchor": f"{name}-{scale}-{row['claim']}",
            }
            for row in rows
        ],
    }  # fmt: skip


def all_evidence(row: dict, ladder: Ladder, others: list[dict]) -> list[str]:
    """Return a claim's own evidence, that of the ladder, and the same claim at other scales, in words."""
    scales = [f"at scale {other['scale']} {ours(other)}: {verdict_label(other)}" for other in others]
    return [text for text in (evidence(row), at_long_end(row, ladder), *scales) if text]


def by_reason(rows: Iterable[dict]) -> dict[str, list[dict]]:
    """Group rows by the reason of their verdicts, the largest group first."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["reason"], []).append(row)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def by_kind(rows: Iterable[dict]) -> dict[str, dict[str, list[dict]]]:
    """Group rows that can't be tested by kind and reason."""
    refused = [row for row in rows if row["verdict"] == NOT_TESTABLE]
    groups = {kind: by_reason(row for row in refused if row["untested"] == kind) for kind in UNTESTED}
    return {kind: reasons for kind, reasons in groups.items() if reasons}


def unclaimed(numbers: Paper, sections: list[dict]) -> dict[str, str]:
    """Return the tables and figures of the paper that no claim's source names: {item: titles}."""
    sources = " ".join(row["source"] for part in sections for row in part["rows"])
    items: dict[str, list[str]] = {}
    for block in numbers.blocks.values():
        if block.item not in sources and block.item.startswith(("Table", "Fig")):
            items.setdefault(block.item, []).append(block.title)
    return {item: "; ".join(filter(None, titles)) for item, titles in items.items()}


def shown(scale: str, results: Path) -> list[tuple[str, str]]:
    """Return the recipes of a scale's page, each with the scale at which it was run.

    These are the recipes of the scale itself, and those of scales that share the page and have verdicts.

    Raises:
        UserError: the scale is unknown.
    """
    catalog = load()
    page = catalog.scale(scale).scoreboard
    scales = [scale, *(name for name, other in catalog.scales.items() if other.scoreboard == page and name != scale)]
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


def labelled(row: dict) -> dict:
    """Return a row with our number, the label of its verdict and whose claim it is, as texts."""
    return row | {"ours": ours(row), "label": verdict_label(row), "whose": ORIGINS[row["origin"]]}


def primary_table(rows: list[dict]) -> list[str]:
    """Return the primary ones of `labelled` rows, as lines of a Markdown table."""
    lines = ["| claim | whose | ours | verdict |", "|---|---|---|---|"]
    for row in rows:
        if row["primary"]:
            lines.append(f"| {cell(row['sentence'])} | {row['whose']} | {cell(row['ours'])} | **{row['label']}** |")
    return lines


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def whose(numbers: Paper) -> str:
    """Say where the paper's numbers are from, and what that means for its main table."""
    score, size, padded = (
        numbers.value(f"{cell}/openbookqa")
        for cell in ("table-3-350m/stem-full", "test-sizes/items", "test-sizes/padded")
    )
    return (
        "Nobody here has read the paper's PDF. Its numbers are from its abstract and the authors' blog, README and "
        "code, from images, and from other people's notes; each has its source next to it. Its Table 3 appears to come "
        f"from two test-set sizes: STEM full's {score:.2f}% in OpenBookQA is {score * padded / 100:.0f} right answers "
        f"of {padded:.0f}, and not a whole number of the test's {size:.0f} ({score * size / 100:.2f})."
    )


def html(sections: list[dict], numbers: Paper, out: Path, ladder: Ladder) -> str:
    """Return the page index.html, complete in itself."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    rows = [row for part in sections for row in part["rows"]]
    root = os.path.relpath(".", out)
    by_origin = {origin: [row for row in rows if row["origin"] == origin] for origin in ORIGINS}
    page = environment.get_template("scoreboard.html").render(
        sections=sections,
        meanings=MEANING,
        control_words=CONTROL_WORDS,
        colours=COLOUR,
        origins=ORIGINS,
        tally=tally(rows),
        counts=Counter(row["verdict"] for row in of_paper(rows)),
        controls=tally(rows)["control"],
        primary=[row for row in rows if row["primary"]],
        scales=list(dict.fromkeys(part["scale"] for part in sections)),
        root=f"{root}/",
        unclaimed=unclaimed(numbers, sections),
        agreement=agreement_words(rows, ladder),
        refused={"The paper's claims": by_kind(of_paper(rows)), "Controls of ours": by_kind(by_origin["control"])},
        reach=out_of_reach(rows).replace("*", ""),
        untested={origin: untested(members) for origin, members in by_origin.items()},
        whose=whose(numbers),
        missing=sum(cell["value"] is None for cell in numbers.listing()),
    )
    return page.replace("&#39;", "'")  # attributes stand in double quotes


def markdown(sections: list[dict], numbers: Paper, out: Path, ladder: Ladder) -> str:
    """Return the page README.md: the same claims as tables."""
    rule, predictions = os.path.relpath("docs/verdicts.md", out), os.path.relpath("docs/predictions.md", out)
    rows = [row for part in sections for row in part["rows"]]
    agreement = agreement_words(rows, ladder)
    lines = [
        "# Scoreboard", "",
        "Written by the pipeline; [index.html](index.html) is the same with filters (download it, or open it from a "
        "clone). A row is a claim; its effect is signed so that the claim makes it positive; brackets hold the "
        f"interval after the correction for multiple claims, and its level ([how]({rule}); [what we had "
        f"expected]({predictions})). Controls are questions of ours, and have words of their own: one that comes out "
        "the other way says nothing against the paper.", "",
        whose(numbers), "", *tally_table(rows), "", out_of_reach(rows), "", *([agreement, ""] if agreement else []),
        "| verdict | of a control | means |", "|---|---|---|",
        *(f"| **{verdict}** | *{CONTROL_WORDS[verdict]}* | {MEANING[verdict]} |" for verdict in VERDICTS),
        "", "## Primary claims", "", *primary_table(rows),
    ]  # fmt: skip
    for part in sections:
        where = f"scale `{part['scale']}`" if part["runs"] else "arithmetic: the same at every scale"
        lines += ["", f"## {part['title']}", "", f"Paper: {part['paper_item']}. Recipe `{part['name']}`, {where}.", "",
                  f"![{part['alt']}]({part['folder']}/figure.png)", ""]  # fmt: skip
        if part["estimates"]:
            counted = f"{part['estimates']} estimates without verdicts"
            lines += [f"[{counted}]({part['folder']}/explained.html#estimates).", ""]
        if part["rows"]:
            lines += ["| claim | whose | paper | ours | evidence | verdict | why |", "|---|---|---|---|---|---|---|"]
        for row in part["rows"]:
            mark = " (primary)" if row["primary"] else ""
            origin = f"<br>{cell(row['source'])}" if row["source"] else ""
            lines.append(
                f"| {cell(row['sentence'])}{mark}<br>`{row['claim']}`: {cell(row['contrast'])} | {row['whose']} | "
                f"{cell(row['paper'])}{origin} | {cell(row['ours'])} | {cell(row['evidence'])} | **{row['label']}** | "
                f"{cell(row['reason'])} |"
            )
    return "\n".join(lines) + "\n"


COLUMNS = (
    "scale", "recipe", "claim", "sentence", "origin", "primary", "kind", "metric", "unit", "arms",
    "paper", "paper_unit", "paper_source", "paper_confidence",
    "ours", "ci_low", "ci_high", "level", "smallest_effect", "seeds", "differences", "seed_se", "item_se", "p",
    "verdict", "word", "untested", "reason",
)  # fmt: skip
"""The columns of claims.csv."""


def table(claims: list[tuple[str, dict]]) -> str:
    """Return claims.csv with one line per claim, of pairs (recipe, row); spaces separate the items of lists."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for recipe, row in claims:
        given = row["paper"] or {}
        texts = {
            "recipe": recipe,
            "arms": " ".join(row["arms"]),
            "word": verdict_label(row),
            "paper": given.get("value"),
            "paper_unit": given.get("unit"),
            "paper_source": given.get("source"),
            "paper_confidence": given.get("confidence"),
            "differences": " ".join(f"{value:g}" for value in row.get("differences") or () if value is not None),
        }
        writer.writerow(row | texts)
    return text.getvalue()


def claims_table(scale: str, results: Path) -> str:
    """Return claims.csv of a scale's pages, for recipes that have verdicts.

    Raises:
        UserError: verdicts are damaged.
    """
    recipes = [(name, at) for name, at in shown(scale, results) if (results / at / name / "verdicts.json").exists()]
    return table([(name, row) for name, at in recipes for row in rows_of(results, at, name)])


def write_scoreboard(scale: str, results: Path) -> Path:
    """Write index.html, README.md and claims.csv of a scale and of the scales that share its pages.

    Returns:
        The scale's scoreboard folder, which holds these files.

    Raises:
        UserError: the scale is unknown, or one of its recipes has no verdicts or no figure.
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
