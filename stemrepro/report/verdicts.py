"""The rows of verdicts.json, and what their verdicts are called."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.yaml_records import Factor, Strict, parse
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import ORIGINS, Origin
from stemrepro.verdicts.rule import NOT_TESTABLE, UNTESTED, VERDICTS

CONTROL_WORDS = dict(zip(VERDICTS, ("holds", "leans", "does not hold", "can't tell", "not testable"), strict=True))
"""What the verdicts of our controls are called: controls never speak for or against the paper.

"holds" is an effect larger than what counts, whatever its size.
"""
AT_OFFICIAL_INIT = {"official_init", "official_init_same_sign"}
"""Fields of claims that were also measured at the official initialisation of the embeddings.

They are the effect, and whether it has the same sign.
"""


class Row(Strict):
    """A claim as stemrepro.report.results.verdict_rows writes it."""

    model_config = ConfigDict(extra="ignore")

    claim: str
    sentence: str
    origin: Origin
    primary: bool
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
    level: float | None
    tuned: float | None
    seed_se: float | None
    item_se: float | None
    p: float | None
    seeds: Annotated[int, Field(ge=0)]
    differences: tuple[float | None, ...] | None = None
    scale: str
    verdict: Literal[VERDICTS]
    untested: Literal[UNTESTED] | None
    reason: str
    official_init: float | None = None
    official_init_same_sign: bool = False

    @model_validator(mode="after")
    def _whole(self) -> "Row":
        if (self.ci_low is None) != (self.ci_high is None) or (self.ours is None and self.ci_low is not None):
            raise ValueError("ours, ci_low and ci_high: an interval has two ends and a value within")
        if len(AT_OFFICIAL_INIT & self.model_fields_set) == 1:
            raise ValueError("official_init and official_init_same_sign stand together")
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


def verdict_label(row: dict) -> str:
    """Return what the verdict of a row is called, which depends on the origin of its claim."""
    return CONTROL_WORDS[row["verdict"]] if row["origin"] == "control" else row["verdict"]


def tally(rows: list[dict]) -> dict[Origin, dict[str, int]]:
    """Count the claims by origin and verdict."""
    counts = Counter((row["origin"], row["verdict"]) for row in rows)
    return {origin: {verdict: counts[origin, verdict] for verdict in VERDICTS} for origin in ORIGINS}


def of_paper(rows: list[dict]) -> list[dict]:
    """Return the rows of the paper's results and arithmetic, which are counted without our controls."""
    return [row for row in rows if row["origin"] != "control"]


def untested(rows: list[dict]) -> str:
    """Count the claims that can't be tested, by reason.

    Examples are "45: 25 not run, 20 model too small", "1 confounded" and "0".
    """
    counts = Counter(row["untested"] for row in rows if row["verdict"] == NOT_TESTABLE)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in UNTESTED if counts[kind])
    return f"{counts.total()}: {kinds}" if len(counts) > 1 else kinds or "0"


def out_of_reach(rows: list[dict]) -> str:
    """Say of how many of the paper's results the rule can't say "reproduced"; empty where there is none."""
    results = [row for row in rows if row["origin"] == "paper"]
    sized = [row for row in results if row["kind"] == "greater"]
    if not sized:
        return ""
    return (
        f"*Reproduced* is out of reach of {len(sized)} of the paper's {len(results)} results: they claim a direction, "
        "and their sizes aren't expected at these scales."
    )


HEADS = (*VERDICTS[:-1], "not tested")


def tally_table(rows: list[dict]) -> list[str]:
    """Return the counts of claims by origin and verdict, as the lines of a Markdown table."""
    words = [*(f"{verdict} / *{CONTROL_WORDS[verdict]}*" for verdict in VERDICTS[:-1]), HEADS[-1]]
    lines = [f"| claims | {' | '.join(words)} |", f"|---|{'--:|' * len(VERDICTS)}"]
    for origin, counts in tally(rows).items():
        members = [row for row in rows if row["origin"] == origin]
        cells = [*(str(counts[verdict]) for verdict in VERDICTS[:-1]), untested(members)]
        lines.append(f"| {ORIGINS[origin]} ({len(members)}) | {' | '.join(cells)} |")
    return lines


def recipe_table(recipes: dict[str, tuple[str, list[dict]]]) -> list[str]:
    """Return a Markdown table with one line per recipe: verdicts of the paper's claims, and the number of our controls.

    Args:
        recipes: title -> the recipe's item of the paper, and its rows.
    """
    lines = [f"| recipe | paper | {' | '.join(HEADS)} | our controls |", f"|---|---|{'--:|' * (len(VERDICTS) + 1)}"]
    for title, (item, rows) in recipes.items():
        claims = of_paper(rows)
        counts = Counter(row["verdict"] for row in claims)
        cells = [counts[verdict] for verdict in VERDICTS] + [len(rows) - len(claims)]
        lines.append(f"| {title} | {item} | {' | '.join(str(cell or '') for cell in cells)} |")
    return lines
