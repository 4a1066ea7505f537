"""What the pages show of a question: a word, a number, and its claims with their intervals on one axis."""

from collections import Counter
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from stemrepro.config.catalog import Catalog
from stemrepro.config.questions import Question
from stemrepro.config.recipe import Origin
from stemrepro.report.estimates import Printed, printed_numbers
from stemrepro.report.verdicts import TALLIED
from stemrepro.report.words import counted, ours
from stemrepro.verdicts.answer import ANSWERS, answer, says
from stemrepro.verdicts.rule import NOT_ATTEMPTED, NOT_TESTED

COUNTS_DEVIATIONS = "deviating: "
"""Metric of claims that count the printed numbers of a group that do not come out (stemrepro/measures/audit.py)."""
TICKS = MaxNLocator(nbins=3, steps=[1, 2, 5, 10])


def place_bars(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Place the intervals of rows on one axis, as percent of its length.

    The axis is in the unit of the rows or, where they have several, in multiples of the smallest effect that counts.

    Returns:
        unit; ticks: pairs of a place and its number; zero: its place; bars: {id of the row: places of low, mean and
        high, of both ends of what counts as no effect (least, most), of the paper's number if it has the same unit
        (paper, else None) and of single seeds}.
    """
    rows = [row for row in rows if row["ci_low"] is not None]
    units = {row["unit"] for row in rows}
    bars = {}
    for row in rows:
        size = row["smallest_effect"] if len(units) > 1 else 1
        same = row["paper"] and row["paper"]["unit"] == row["unit"] and row["kind"] != "equivalent"
        bars[row["id"]] = {
            "low": row["ci_low"] / size,
            "mean": row["ours"] / size,
            "high": row["ci_high"] / size,
            "least": -row["smallest_effect"] / size,
            "most": row["smallest_effect"] / size,
            "paper": row["paper"]["value"] / size if same else None,
            "seeds": [value / size for value in row.get("differences") or () if value is not None],
        }
    numbers = [value for bar in bars.values() for part in bar.values() for value in _list(part)]
    left, right = min(numbers, default=-1.0), max(numbers, default=1.0)
    margin = 0.04 * (right - left)
    left, right = left - margin, right + margin

    def place(part: float | list[float] | None) -> float | list[float] | None:
        places = [round(100 * (value - left) / (right - left), 1) for value in _list(part)]
        return places if isinstance(part, list) else next(iter(places), None)

    return {
        "unit": next(iter(units), "") if len(units) < 2 else "times the smallest effect that counts",
        "ticks": [
            (place(float(tick)), float(tick)) for tick in TICKS.tick_values(left, right) if left <= tick <= right
        ],
        "zero": place(0.0),
        "bars": {key: {name: place(part) for name, part in bar.items()} for key, bar in bars.items()},
    }


def _list(part: float | list[float] | None) -> list[float]:
    return part if isinstance(part, list) else [] if part is None else [part]


def _printed(row: dict[str, Any], catalog: Catalog, results: Path) -> list[Printed]:
    """Return the printed numbers that a claim about the paper's arithmetic counts."""
    if row["origin"] != "arithmetic" or not row["metric"].startswith(COUNTS_DEVIATIONS):
        return []
    file = results / row["scale"] / row["recipe"] / "data.csv"
    return printed_numbers(catalog.recipes[row["recipe"]], file, row["metric"].removeprefix(COUNTS_DEVIATIONS))


def answered(
    question: Question, rows: dict[str, list[dict[str, Any]]], catalog: Catalog, results: Path
) -> dict[str, Any]:
    """Return what a page shows of a question.

    Args:
        rows: of verdicts.json, by recipe/claim; of several scales the first answers the question.
        results: folder of all results.

    Returns:
        asked, label: of the question.
        word: the answer, or "-" where no claim decides.
        split: what the deciding claims say, by whose they are.
        claims: the rows, those of the paper first, with what each says and the printed numbers that it counts.
        axis: theirs, as `place_bars` returns it.
        not_attempted: number of claims by the title of their recipe.
        number, interval: the number next to the answer, as text, and the verdict of its own claim.
        lead, lead_axis: the row of that number, or None, and an axis for it alone.
    """
    claims: list[dict[str, Any]] = []
    not_attempted: Counter[str] = Counter()
    said: dict[Origin, Counter[str]] = {origin: Counter() for origin in TALLIED}
    for name in question.claims():
        recipe = catalog.recipes[name.partition("/")[0]]
        first, *others = rows.get(name) or [{"verdict": NOT_TESTED, "untested": NOT_ATTEMPTED}]
        if name not in question.also:
            word = says(first["verdict"], name in question.opposes)
            said[recipe.claims[name.partition("/")[2]].origin][word] += 1
        else:
            word = None
        if first["untested"] == NOT_ATTEMPTED:
            not_attempted[recipe.title] += 1
            continue
        claims.append(first | {"says": word, "printed": _printed(first, catalog, results)})
        claims += [other | {"says": None, "printed": []} for other in others]
    claims.sort(key=lambda row: (list(TALLIED).index(row["origin"]), row["says"] is None))
    split = {
        TALLIED[origin]: ", ".join(f"{counts[word]} {word}" for word in ANSWERS if counts[word])
        for origin, counts in said.items()
        if counts
    }
    return {
        "asked": question.asked,
        "label": question.label,
        "word": answer(word for counts in said.values() for word in counts) if split else "-",
        "split": "; ".join(f"{whose}: {words}" for whose, words in split.items()),
        "claims": claims,
        "not_attempted": not_attempted,
        "axis": place_bars(claims),
        **_number(question, claims),
    }


def _number(question: Question, claims: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the number that stands next to the answer: text and interval, and its claim; "-" where there is none."""
    lead = next((row for row in claims if row["name"] == question.number), None)
    if lead and lead["ours"] is not None:
        value, bracket, rest = ours(lead).partition(" (")
        interval = f"{bracket.strip()}{rest}: {lead['verdict']}"
        return {"number": value, "interval": interval, "lead": lead, "lead_axis": place_bars([lead])}
    numbers = [number for row in claims if row["says"] for number in row["printed"]]
    same, slips = sum(number.same for number in numbers), sum(number.slip for number in numbers)
    words = f"{same} of {len(numbers)}" + (f", and {counted(str(slips), 'slips')} of the last digit" if slips else "")
    return {"number": words if numbers else "-", "interval": "", "lead": None}
