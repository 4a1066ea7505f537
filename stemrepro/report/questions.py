"""The questions of a page, answered by its claims: a word, a number, a picture, and every claim on one axis."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from stemrepro.config.catalog import Catalog
from stemrepro.config.questions import Question
from stemrepro.config.recipe import ORIGINS, Claim
from stemrepro.report.drawing import bar, common_axis, in_multiples, scale_line, squares
from stemrepro.report.estimates import Printed, printed_numbers
from stemrepro.report.page_parts import image
from stemrepro.report.verdicts import TALLIED
from stemrepro.report.words import ours
from stemrepro.verdicts.answer import ANSWERS, answer, says
from stemrepro.verdicts.rule import NOT_ATTEMPTED, NOT_TESTED, VERDICTS

GROUP = "deviating:"
"""Metric of claims that count the printed numbers of a group that do not come out (stemrepro/measures/audit.py)."""


@dataclass(frozen=True)
class Asked:
    """A claim under a question.

    Attributes:
        name: recipe/claim.
        claim: of the catalog.
        row: of verdicts.json, or None where the page has none.
        says: yes, no, can't tell or not tested; None where it decides nothing.
        numbers: printed numbers that a claim of the paper's arithmetic counts.
    """

    name: str
    claim: Claim
    row: dict | None
    says: str | None
    numbers: list[Printed]

    @property
    def shown(self) -> bool:
        """Whether something was run, or computed."""
        return self.row is not None and self.row["untested"] != NOT_ATTEMPTED

    @property
    def anchor(self) -> str:
        """Where the claim stands on the page."""
        recipe, _, claim = self.name.partition("/")
        return f"{recipe}-{self.row['scale']}-{claim}" if self.row else ""


def asked(question: Question, rows: dict[str, dict], catalog: Catalog, results: Path) -> list[Asked]:
    """Return the claims of a question, those of the paper first.

    Args:
        question: whose claims.
        rows: of the page's verdicts.json, by recipe/claim.
        catalog: with every recipe.
        results: folder of all results.
    """
    claims = []
    for name in question.claims():
        recipe, _, key = name.partition("/")
        claim, row = catalog.recipes[recipe].claims[key], rows.get(name)
        word = None if name in question.also else says(row["verdict"] if row else NOT_TESTED, name in question.opposes)
        numbers = []
        if row and claim.origin == "arithmetic" and claim.metric.startswith(GROUP):
            file = results / row["scale"] / recipe / "data.csv"
            numbers = printed_numbers(catalog.recipes[recipe], file, claim.metric.removeprefix(GROUP))
        claims.append(Asked(name, claim, row, word, numbers))
    order = list(TALLIED)
    return sorted(claims, key=lambda one: (order.index(one.claim.origin), one.says is None))


def _split(claims: list[Asked]) -> str:
    """Count what the deciding claims say, by whose they are: "the paper's results: 2 yes; our own questions: 1 no"."""
    parts = []
    for origin, whose in TALLIED.items():
        counts = Counter(one.says for one in claims if one.says and one.claim.origin == origin)
        said = ", ".join(f"{counts[word]} {word}" for word in ANSWERS if counts[word])
        parts += [f"{whose}: {said}"] if said else []
    return "; ".join(parts)


def _said(row: dict) -> str:
    """Write the number of a row; of a number that is computed, also what the sentence needs."""
    needed = row["paper"]["value"] if row["paper"] else row["expected"]
    return f"{ours(row)}, where the sentence needs {needed:g}" if row["kind"] == "exact" else ours(row)


def _line(one: Asked, limits: tuple[float, float], multiples: bool) -> dict:
    """Return what the page shows of a claim."""
    row = one.row or {}
    drawn = in_multiples(row) if multiples and row["ci_low"] is not None else row
    return {
        "name": one.name,
        "sentence": row["sentence"],
        "origin": row["origin"],
        "whose": ORIGINS[row["origin"]],
        "ours": _said(row),
        "verdict": row["verdict"],
        "untested": row["untested"],
        "number": VERDICTS.index(row["verdict"]),
        "says": one.says,
        "anchor": one.anchor,
        "picture": squares([number.same for number in one.numbers]) if one.numbers else bar(drawn, limits),
        "numbers": one.numbers,
        "off": [number for number in one.numbers if not number.same],
    }


def answered(question: Question, rows: dict[str, dict], catalog: Catalog, results: Path, out: Path) -> dict:
    """Return what a page shows of a question.

    Args:
        question: to answer.
        rows: of the page's verdicts.json, by recipe/claim.
        catalog: with every recipe.
        results: folder of all results.
        out: folder of the page.
    """
    claims = asked(question, rows, catalog, results)
    shown = [one for one in claims if one.shown]
    limits, unit = common_axis([one.row for one in shown if one.row])
    missing = Counter(catalog.recipes[one.name.partition("/")[0]].title for one in claims if not one.shown)
    recipe, _, letter = question.panel.partition("/")
    scale = next((row["scale"] for name, row in rows.items() if name.startswith(f"{recipe}/")), "")
    path = results / scale / recipe / "figure.svg"
    return {
        "asked": question.asked,
        "word": answer(one.says for one in claims if one.says),
        "split": _split(claims),
        "label": question.label,
        **_number(question, claims),
        "lines": [_line(one, limits, unit is None) for one in shown],
        "scale_line": scale_line(limits, unit or "times what counts") if any(_has_bar(one) for one in shown) else "",
        "unit": unit,
        "missing": dict(missing),
        "image": image(path, out) if path.exists() else None,
        "figure": {"recipe": recipe, "scale": scale, "letter": letter, "title": catalog.recipes[recipe].title},
    }


def _has_bar(one: Asked) -> bool:
    return one.row is not None and one.row["ci_low"] is not None


def _number(question: Question, claims: list[Asked]) -> dict:
    """Return the number of a question as text, with its interval and picture apart; "-" where there is none."""
    if question.number is None:
        numbers = [number for one in claims if one.says for number in one.numbers]
        same = [number.same for number in numbers]
        return {"value": f"{sum(same)} of {len(same)}" if same else "-", "interval": "", "picture": squares(same)}
    row = rows[0] if (rows := [one.row for one in claims if one.name == question.number]) else None
    if row is None or row["ours"] is None:
        return {"value": "-", "interval": "", "picture": Markup("")}
    value, _, rest = ours(row).partition(" (")
    return {
        "value": value,
        "interval": f"({rest}" if rest else "",
        "picture": bar(row, common_axis([row])[0]),
        "colour": VERDICTS.index(row["verdict"]),
        "origin": row["origin"],
    }
