"""The rows of verdicts.json, read and counted."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.yaml_records import Factor, Strict, parse
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Origin
from stemrepro.verdicts.rule import NOT_TESTED, SIZES, UNTESTED, VERDICTS

TALLIED: dict[Origin, str] = {
    "paper": "the paper's results",
    "arithmetic": "the paper's arithmetic",
    "control": "our own questions",
}
"""Claims are counted by whose they are, and nowhere together."""


class Row(Strict):
    """A claim as stemrepro.report.evidence.verdict_rows writes it."""

    model_config = ConfigDict(extra="ignore")

    claim: str
    sentence: str
    origin: Origin
    kind: str
    metric: str
    unit: str
    arms: tuple[str, ...]
    paper: PaperNumber | None
    expected: float | None
    smallest_effect: Factor
    ours: float | None
    ci_low: float | None
    ci_high: float | None
    ci99_low: float | None
    ci99_high: float | None
    seeds: Annotated[int, Field(ge=0)]
    differences: tuple[float | None, ...] | None
    item_se: float | None
    method: str | None
    scale: str
    verdict: Literal[VERDICTS]
    size: Literal[SIZES] | None
    untested: Literal[UNTESTED] | None
    reason: str

    @model_validator(mode="after")
    def _whole(self) -> "Row":
        if (self.ci_low is None) != (self.ci_high is None) or (self.ours is None and self.ci_low is not None):
            raise ValueError("ours, ci_low and ci_high: an interval has two ends and a value within")
        return self


def read_verdicts(path: Path) -> list[dict]:
    """Return the rows of a verdicts.json.

    Raises:
        UserError: the file is missing or damaged, or has a claim twice.
    """
    rows = read_json(path)
    again = "restore it or run 'make figures' with its SCALE"
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} holds no list of claims; {again}")
    for row in rows:
        try:
            parse(Row, row, path, f"claim '{row.get('claim')}'", exact=True)
        except UserError as error:
            raise UserError(f"{error}; {again}") from error
    if len({row["claim"] for row in rows}) < len(rows):
        raise UserError(f"{path} has a claim twice; {again}")
    return rows


def by_origin(rows: list[dict]) -> dict[Origin, list[dict]]:
    """Return the rows of each origin, in the order in which they are shown."""
    return {origin: [row for row in rows if row["origin"] == origin] for origin in TALLIED}


def tally(rows: list[dict]) -> dict[Origin, dict[str, int]]:
    """Count the claims by origin and verdict."""
    counts = Counter((row["origin"], row["verdict"]) for row in rows)
    return {origin: {verdict: counts[origin, verdict] for verdict in VERDICTS} for origin in TALLIED}


def untested(rows: list[dict]) -> str:
    """Count the claims that are not tested, by reason.

    Examples are "45: 25 not attempted, 20 model too small", "1 confounded" and "0".
    """
    counts = Counter(row["untested"] for row in rows if row["verdict"] == NOT_TESTED)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in UNTESTED if counts[kind])
    return f"{counts.total()}: {kinds}" if len(counts) > 1 else kinds or "0"


def sizes(rows: list[dict]) -> str:
    """Say how often a size is the paper's, of its results that were tested; empty where there is none."""
    counts = Counter(row["size"] for row in rows if row["size"])
    if not counts:
        return ""
    parts = ", ".join(f"{size} {counts[size]}" for size in SIZES)
    return f"Sizes of the paper's {counts.total()} tested effects: {parts}. No verdict depends on a size."


def tally_table(rows: list[dict]) -> list[str]:
    """Return the counts of claims by origin and verdict, as the lines of a Markdown table."""
    lines = [f"| claims | {' | '.join(VERDICTS)} |", f"|---|{'--:|' * len(VERDICTS)}"]
    for origin, members in by_origin(rows).items():
        counts = Counter(row["verdict"] for row in members)
        cells = [*(str(counts[verdict]) for verdict in VERDICTS[:-1]), untested(members)]
        lines.append(f"| {TALLIED[origin]} ({len(members)}) | {' | '.join(cells)} |")
    return lines


def counted(rows: list[dict]) -> str:
    """Count verdicts in words: "3 supported, 1 undecided"; empty where there is no row."""
    counts = Counter(row["verdict"] for row in rows)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
