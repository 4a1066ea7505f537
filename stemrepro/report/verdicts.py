"""The rows of verdicts.json, read and counted."""

from collections import Counter
from pathlib import Path
from typing import Any

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.config.catalog import Catalog
from stemrepro.config.recipe import Claim, Origin
from stemrepro.verdicts.rule import NOT_ATTEMPTED, NOT_TESTED, SIZES, UNTESTED, VERDICTS

TALLIED: dict[Origin, str] = {
    "paper": "the paper's results",
    "arithmetic": "the paper's arithmetic",
    "control": "our own questions",
}
"""Claims are counted by whose they are, and nowhere together."""
CLAIM = set(Claim.model_fields) - {"requires", "comparable"}
FOUND = {"claim", "ours", "ci_low", "ci_high", "ci99_low", "ci99_high", "seeds", "differences", "item_se", "method"}
COLUMNS = CLAIM | FOUND | {"scale", "verdict", "size", "untested", "reason"}
"""Fields of a row."""


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a verdicts.json as stemrepro.report.evidence.verdict_rows writes them.

    Raises:
        UserError: the file is missing or damaged.
    """
    rows: Any = read_json(path)
    try:
        names = {row["claim"] for row in rows if row["verdict"] in VERDICTS and row["origin"] in TALLIED}
        whole = isinstance(rows, list) and len(names) == len(rows) and all(row.keys() >= COLUMNS for row in rows)
    except (TypeError, KeyError):
        whole = False
    if not whole:
        raise UserError(f"{path} is damaged: it is no list of claims; restore it or run 'make figures' with its SCALE")
    return list(rows)


def by_origin(rows: list[dict[str, Any]]) -> dict[Origin, list[dict[str, Any]]]:
    """Return the rows of each origin, in the order in which they are shown."""
    return {origin: [row for row in rows if row["origin"] == origin] for origin in TALLIED}


def tally(rows: list[dict[str, Any]]) -> dict[Origin, dict[str, int]]:
    """Count the claims by origin and verdict."""
    counts = Counter((row["origin"], row["verdict"]) for row in rows)
    return {origin: {verdict: counts[origin, verdict] for verdict in VERDICTS} for origin in TALLIED}


def untested(rows: list[dict[str, Any]]) -> str:
    """Count the claims that are not tested, by reason.

    Examples are "45: 25 not attempted, 20 model too small", "1 confounded" and "0".
    """
    counts = Counter(row["untested"] for row in rows if row["verdict"] == NOT_TESTED)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in UNTESTED if counts[kind])
    return f"{counts.total()}: {kinds}" if len(counts) > 1 else kinds or "0"


def sizes(rows: list[dict[str, Any]]) -> str:
    """Say how often a size is the paper's, of its results that were tested; empty where there is none."""
    counts = Counter(row["size"] for row in rows if row["size"])
    if not counts:
        return ""
    same, other, _ = (counts[size] for size in SIZES)
    if not same + other:
        return (
            f"{counts.total()} of the paper's tested results are effects with a size. None can be compared in size: "
            "the paper uses other measures, other tokens per parameter or another way of training."
        )
    return (
        f"Of the paper's {counts.total()} tested effects {same + other} can be compared in size: {same} is within a "
        f"factor of two of the paper's number, {other} isn't. No verdict depends on a size."
    )


def not_attempted(rows: list[dict[str, Any]], catalog: Catalog) -> list[dict[str, Any]]:
    """Return a row for each claim of the recipes that have none, to be counted with the others."""
    there = {row["recipe"] for row in rows}
    row = {"verdict": NOT_TESTED, "untested": NOT_ATTEMPTED}
    absent = [recipe for name, recipe in catalog.recipes.items() if name not in there]
    return [
        row | {"origin": claim.origin, "claim": claim, "item": recipe.paper_item}
        for recipe in absent
        for claim in recipe.claims.values()
    ]


def tally_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the counts of claims by origin and verdict, as the lines of a Markdown table."""
    lines = [f"| claims | {' | '.join(VERDICTS)} |", f"|---|{'--:|' * len(VERDICTS)}"]
    for origin, members in by_origin(rows).items():
        counts = Counter(row["verdict"] for row in members)
        cells = [*(str(counts[verdict]) for verdict in VERDICTS[:-1]), untested(members)]
        lines.append(f"| {TALLIED[origin]} ({len(members)}) | {' | '.join(cells)} |")
    return lines


def counted(rows: list[dict[str, Any]]) -> str:
    """Count verdicts in words: "3 supported, 1 undecided"; empty where there is no row."""
    counts = Counter(row["verdict"] for row in rows)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
