"""The pages with every claim: index.html for people, README.md with a page per question, claims.csv the same as data.

All follow from recipes/questions.yaml, verdicts.json, data.csv of computed numbers and the figures alone.
"""

import ast
import csv
import io
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import ANALYSES
from stemrepro.config.address import MAIN, Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.config.paper import Paper
from stemrepro.config.questions import read_questions
from stemrepro.config.recipe import ORIGINS, Recipe
from stemrepro.config.scale import Variant
from stemrepro.measures.catalog import load
from stemrepro.model.cost import parameter_counts
from stemrepro.report.drawing import COLOUR, Line, axis, drawing
from stemrepro.report.ladder import LONG_END, OPEN, OTHER, SAME, Ladder, read_ladder, rungs_of
from stemrepro.report.ladder import counted as agreeing
from stemrepro.report.leaderboard import ranks, read_table
from stemrepro.report.page_parts import LEADERBOARD, cell, image, shown
from stemrepro.report.questions import answered
from stemrepro.report.verdicts import (
    TALLIED,
    by_origin,
    counted,
    read_verdicts,
    sizes,
    tally,
    tally_table,
    untested,
)
from stemrepro.report.words import at_long_end, contrast, evidence, ours, paper, paper_items, source
from stemrepro.verdicts.answer import ANSWERS
from stemrepro.verdicts.rule import CONTRADICTED, NOT_ATTEMPTED, NOT_TESTED, SUPPORTED, UNDECIDED, UNTESTED, VERDICTS

QUESTIONS = "questions"
"""Folder of the questions' pages, next to README.md."""
REUSE = "Figures and numbers are free to reuse (Apache-2.0); please name this repository."
MEANING = {
    SUPPORTED: "the effect is shown to have the claimed sign; an equivalence or a number is shown",
    CONTRADICTED: "the effect is shown to have the other sign, or to be too small to count; a number is another one",
    UNDECIDED: "neither is shown: our runs can't tell",
    NOT_TESTED: "nothing was attempted here, or a precondition is shown to fail, whatever the contrast says",
}


def agreement_words(rows: list[dict], ladder: Ladder) -> str:
    """Say how often a page's claims agree with the ladder's last rung; empty where none can be compared."""
    parts = []
    for origin, members in by_origin(rows).items():
        if counts := agreeing(members, ladder):
            ways = f"the same way {counts[SAME]}, the other way {counts[OTHER]}, open in one of the two {counts[OPEN]}"
            parts.append(f"of {TALLIED[origin]} {ways}")
    if not parts:
        return ""
    tokens = next(iter(ladder.values()))[-1].tokens_a_parameter
    return (
        f"The ladder trained two compared arms for {tokens:.0f} tokens per parameter, the paper's ratio. "
        f"There they point, by 95% intervals: {'; '.join(parts)}."
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
    """Return a recipe's verdicts at a scale.

    Raises:
        UserError: the verdicts are missing or damaged.
    """
    path = results / scale / name / "verdicts.json"
    if not path.exists():
        raise UserError(f"{path} is missing; 'make figures SCALE={scale}' draws it from the scores")
    return read_verdicts(path)


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
    return f"{what} Means over seeds with 95% intervals where bars are drawn ({count} seeds)."


def section(results: Path, scale: str, name: str, catalog: Catalog, out: Path, ladder: Ladder) -> dict:
    """Return what a page shows of one recipe at one scale."""
    recipe = catalog.recipes[name]
    folder, rows = results / scale / name, rows_of(results, scale, name)
    others = at_other_scales(results, scale, name, catalog)
    if not (folder / "figure.svg").exists():
        raise UserError(f"{folder}/figure.svg is missing; 'make figures SCALE={scale}' draws it from the scores")
    items = paper_items(recipe.paper_item)
    groups = {TALLIED[origin]: members for origin, members in by_origin(rows).items() if members}
    summary = "; ".join(f"{whose}: {counted(members)}" for whose, members in groups.items()) or "no claims"
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
        "image": image(folder / "figure.svg", out),
        "alt": f"Figure of {name} at scale {scale}: {recipe.title}. Its claims: {summary}.",
        "caption": caption(name, recipe, rows),
        "items": "|".join(items),
        "estimates": len(recipe.estimates),
        "ranks": ranks(read_table(folder, catalog)) if recipe.measure == LEADERBOARD else {},
        "counts": {
            whose: Counter(VERDICTS.index(row["verdict"]) for row in members) for whose, members in groups.items()
        },
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
                "multiples": multiples(row),
                "evidence": "; ".join(all_evidence(row, ladder, others.get(row["claim"], []))),
                "anchor": f"{name}-{scale}-{row['claim']}",
            }
            for row in rows
        ],
    }  # fmt: skip


def all_evidence(row: dict, ladder: Ladder, others: list[dict]) -> list[str]:
    """Return a claim's own evidence, that of the ladder, and the same claim at other scales, in words."""
    scales = [f"at scale {other['scale']} {ours(other)}: {other['verdict']}" for other in others]
    return [text for text in (evidence(row), at_long_end(row, ladder), *scales) if text]


def by_reason(rows: Iterable[dict]) -> dict[str, list[dict]]:
    """Group rows by the reason of their verdicts, the largest group first."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["reason"], []).append(row)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def by_kind(rows: Iterable[dict]) -> dict[str, dict[str, list[dict]]]:
    """Group rows that are not tested by kind and reason."""
    refused = [row for row in rows if row["verdict"] == NOT_TESTED]
    groups = {kind: by_reason(row for row in refused if row["untested"] == kind) for kind in UNTESTED}
    return {kind: reasons for kind, reasons in groups.items() if reasons}


def unclaimed(numbers: Paper, sections: list[dict]) -> dict[str, str]:
    """Return the tables and figures of the paper that no claim's source or recipe names: {item: titles}."""
    claimed = [part for part in sections if part["rows"]]
    sources = " ".join(row["source"] for part in claimed for row in part["rows"])
    named = {item for part in claimed for item in part["items"].split("|")}
    items: dict[str, list[str]] = {}
    for block in numbers.blocks.values():
        known = block.item in sources or set(paper_items(block.item)) <= named
        if block.item.startswith(("Table", "Fig")) and not known:
            items.setdefault(block.item, []).append(block.title)
    return {item: "; ".join(filter(None, titles)) for item, titles in items.items()}


def every_row(scale: str, results: Path) -> list[dict]:
    """Return all claims of a scale's page."""
    return [
        row
        for name, at in shown(scale, results)
        if (results / at / name / "verdicts.json").exists()
        for row in rows_of(results, at, name)
    ]


def labelled(row: dict) -> dict:
    """Return a row with our number and whose claim it is, as texts."""
    return row | {"ours": ours(row), "whose": ORIGINS[row["origin"]]}


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


@dataclass(frozen=True)
class Page:
    """What the pages of a scale show.

    Attributes:
        sections: one per recipe, as `section` returns them.
        questions: as `answered` returns them, by key.
        catalog: of all recipes.
        out: folder of the pages.
        ladder: empty where the page has none.
        parameters: of dense at the page's scale.
    """

    sections: list[dict]
    questions: dict[str, dict]
    catalog: Catalog
    out: Path
    ladder: Ladder
    parameters: int

    @property
    def rows(self) -> list[dict]:
        """All claims."""
        return [row for part in self.sections for row in part["rows"]]

    @property
    def words(self) -> dict:
        """What both forms of the page say: of sizes, agreement, sources, and how the paper's claims came out."""
        tested = {(row["recipe"], row["claim"]) for row in self.rows if row["untested"] != NOT_ATTEMPTED}
        absent = [
            recipe.paper_item
            for name, recipe in self.catalog.recipes.items()
            for key, claim in recipe.claims.items()
            if claim.origin == "paper" and (name, key) not in tested
        ]
        return {
            "parameters": f"{self.parameters / 1e6:.2g}M",
            "counts": {origin: counted(members) for origin, members in by_origin(self.rows).items()},
            "absent": len(absent),
            "absent_items": " and ".join(dict.fromkeys(absent)),
            "agreement": agreement_words(self.rows, self.ladder),
            "sizes": sizes(self.rows),
            "whose": whose(self.catalog.paper),
        }


def html(page: Page) -> str:
    """Return the page index.html, complete but for the figures, which it links to."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    root = os.path.relpath(".", page.out)
    groups = by_origin(page.rows)
    text = environment.get_template("scoreboard.html").render(
        reuse=REUSE,
        sections=page.sections,
        questions=page.questions,
        answers=ANSWERS,
        meanings=MEANING,
        rank_heads=("method", "rank", "loss below dense's", "ahead of the next", "parameters", "step time"),
        colours=COLOUR,
        origins=ORIGINS,
        tallied=TALLIED,
        tally=tally(page.rows),
        scales=list(dict.fromkeys(part["scale"] for part in page.sections)),
        root=f"{root}/",
        unclaimed=unclaimed(page.catalog.paper, page.sections),
        refused={TALLIED[origin]: by_kind(members) for origin, members in groups.items()},
        untested={origin: untested(members) for origin, members in groups.items()},
        missing=sum(cell["value"] is None for cell in page.catalog.paper.listing()),
        **page.words,
    )
    return text.replace("&#39;", "'")  # attributes stand in double quotes


def markdown(page: Page) -> str:
    """Return the page README.md: the questions, each with a link to its own page, and the recipes."""
    rule, predictions = os.path.relpath("docs/verdicts.md", page.out), os.path.relpath("docs/predictions.csv", page.out)
    words = page.words
    lines = [
        "# Questions and answers", "",
        "Written by the pipeline; [index.html](index.html) is the same with figures and filters (open it from a "
        "clone), [claims.csv](claims.csv) has every claim as data. An answer follows from the verdicts of a "
        f"question's claims, and a verdict from [one rule]({rule}). [What we had expected]({predictions}).", "",
        words["whose"], "", "| question | answer | number | what it is |", "|---|---|---|---|",
    ]  # fmt: skip
    for key, one in page.questions.items():
        number = f"{one['value']} {one['interval']}".strip()
        link = f"[{cell(one['asked'])}]({QUESTIONS}/{key}.md)"
        lines.append(f"| {link} | **{one['word']}** | {cell(number)} | {cell(one['label'])} |")
    lines += ["", "| answer | when |", "|---|---|", *(f"| **{word}** | {when} |" for word, when in ANSWERS.items())]
    lines += ["", "## The paper's claims, and ours", "", *tally_table(page.rows), "", words["sizes"], ""]
    lines += [words["agreement"], ""] if words["agreement"] else []
    lines += ["The two are counted apart: a question of ours that is contradicted says nothing against the paper."]
    lines += ["", "| verdict | means |", "|---|---|", *(f"| **{word}** | {means} |" for word, means in MEANING.items())]
    lines += ["", "## Experiments", "", "| recipe | paper | scale | |", "|---|---|---|---|"]
    for part in page.sections:
        ranked = f"[ranks]({part['name']}.md), " * bool(part["ranks"])
        data = f"data with {part['estimates']} estimates" if part["estimates"] else "data"
        links = f"{ranked}[figure]({part['folder']}/figure.svg), [{data}]({part['folder']}/data.csv)"
        lines.append(f"| {part['title']} | {part['paper_item']} | {part['scale'] if part['runs'] else '-'} | {links} |")
    return "\n".join(lines) + "\n"


def question_page(one: dict, rows: dict[str, dict], home: str) -> str:
    """Return the page of a question.

    Args:
        one: what `answered` returns.
        rows: of the page's sections, by recipe/claim.
        home: the folder of all results, from the page's.
    """
    number = f"{one['value']} {one['interval']}".strip()
    lines = [f"# {one['asked']}", "", f"**{one['word']}**. {number}: {one['label']}. Decided by {one['split']}."]
    if one["image"]:
        figure = one["figure"]
        path = f"{home}/{figure['scale']}/{figure['recipe']}/figure.svg"
        lines += ["", f"![{figure['title']}]({path})", "", f"See panel {figure['letter']}. {REUSE}"]
    heads = "| claim | whose | says | paper | ours | evidence | verdict | why |"
    lines += ["", heads, "|---|---|---|---|---|---|---|---|"] if one["lines"] else []
    for line in one["lines"]:
        row = rows[line["name"]]
        size = f"<br>{row['size']}" if row["size"] else ""
        origin = f"<br>{cell(row['source'])}" if row["source"] else ""
        lines.append(
            f"| {cell(row['sentence'])}<br>`{line['name']}`: {cell(row['contrast'])} | {row['whose']} | "
            f"{line['says'] or '-'} | {cell(row['paper'])}{origin} | {cell(row['ours'])} | {cell(row['evidence'])} | "
            f"**{row['verdict']}**{size} | {cell(row['reason'])} |"
        )
    if numbers := [number for line in one["lines"] for number in line["numbers"]]:
        lines += ["", "| number | printed | computed | deviation |", "|---|--:|--:|--:|"]
        lines += [
            f"| {cell(number.label)} ({number.unit}) | {number.printed:g} | {number.computed:.5g} | "
            f"{'as printed' if number.same else f'**{number.deviation}**'} |"
            for number in numbers
        ]
    if one["missing"]:
        parts = "; ".join(f"{title}: {count} claims" for title, count in one["missing"].items())
        lines += ["", f"Not attempted: {parts}."]
    return "\n".join(lines) + "\n"


COLUMNS = (
    "scale", "recipe", "claim", "sentence", "origin", "kind", "metric", "unit", "arms",
    "paper", "paper_unit", "paper_source", "paper_confidence",
    "ours", "ci_low", "ci_high", "ci99_low", "ci99_high", "smallest_effect", "seeds", "differences", "item_se",
    "method", "verdict", "size", "untested", "reason",
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
    """Write index.html, README.md, a page per question and claims.csv of a scale and of those that share its pages.

    Returns:
        The scale's scoreboard folder, which holds these files.

    Raises:
        UserError: the scale is unknown, a question names an unknown claim, or a recipe has no verdicts or no figure.
    """
    catalog = load()
    out = results / Path(catalog.scale(scale).scoreboard).relative_to("results")
    longest = catalog.scales.get(LONG_END.parts[0])
    ladder = read_ladder(results) if longest and longest.scoreboard == catalog.scale(scale).scoreboard else {}
    sections = [section(results, at, name, catalog, out, ladder) for name, at in shown(scale, results)]
    rows: dict[str, dict] = {}
    for name, at in shown(scale, results):
        for row in rows_of(results, at, name):
            rows.setdefault(f"{name}/{row['claim']}", row)
    asked = read_questions(catalog)
    dense, _ = run_settings(Address(MAIN, "dense"), catalog.arms["dense"], Variant(), catalog.scale(scale))
    page = Page(
        sections,
        {key: answered(question, rows, catalog, results, out) for key, question in asked.items()},
        catalog,
        out,
        ladder,
        parameter_counts(dense)["total"],
    )
    atomic_write(out / "index.html", html(page))
    atomic_write(out / "README.md", markdown(page))
    told = {f"{row['recipe']}/{row['claim']}": row for row in reversed(page.rows)}
    for key, one in page.questions.items():
        atomic_write(out / QUESTIONS / f"{key}.md", question_page(one, told, os.path.relpath(results, out / QUESTIONS)))
    for path in (out / QUESTIONS).glob("*.md"):
        if path.stem not in page.questions:
            path.unlink()
    atomic_write(out / "claims.csv", claims_table(scale, results))
    return out
