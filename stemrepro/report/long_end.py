"""Claims of a scale beside the same comparison where training is longest, the last rung of recipes/token_ladder.yaml."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from stemrepro.elsewhere import LONG_END
from stemrepro.files import damaged

PAIR = "pair"
"""Panel of the lines that hold one gap of two arms each, "high - low"."""
SAME, OTHER, OPEN = "points the same way there", "points the other way there", "is open in one of the two"


@dataclass(frozen=True)
class LongEnd:
    """Prose loss of one arm less that of another at the last rung, with its 95% interval.

    Attributes:
        tokens_a_parameter: all of dense's, as the paper counts them.
    """

    mean: float
    low: float
    high: float
    tokens_a_parameter: float

    def reversed(self) -> "LongEnd":
        """The same with the arms the other way round."""
        return LongEnd(-self.mean, -self.high, -self.low, self.tokens_a_parameter)


def long_end(results: Path) -> dict[tuple[str, str], LongEnd]:
    """Every pair of arms, both ways round; none where the file is missing.

    Raises:
        UserError: the file is damaged.
    """
    path = results / LONG_END
    if not path.exists():
        return {}
    try:
        rows = pd.read_csv(path)
        rows = rows[rows["panel"] == PAIR]
        found = {
            tuple(row.what.split(" - ")): LongEnd(*map(float, (row.value, row.ci_low, row.ci_high, row.x)))
            for row in rows.itertuples()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from error
    return found | {(low, high): end.reversed() for (high, low), end in found.items()}


def beside(row: dict, ends: dict[tuple[str, str], LongEnd]) -> LongEnd | None:
    """The long end of a claim about two arms' prose losses; None of any other claim, of one that was not measured, and at the ladder itself."""
    if (
        row["metric"] != "prose"
        or row["kind"] == "ordering"
        or row["ci_low"] is None
        or row["scale"] == LONG_END.parts[0]
    ):
        return None
    return ends.get(tuple(row["arms"]))


def agreement(row: dict, end: LongEnd) -> str:
    """Does the interval of a claim lie on the same side of 0 as the long end's?"""
    signs = [int(low > 0) - int(high < 0) for low, high in ((row["ci_low"], row["ci_high"]), (end.low, end.high))]
    return OPEN if 0 in signs else SAME if signs[0] == signs[1] else OTHER


def counted(rows: list[dict], ends: dict[tuple[str, str], LongEnd]) -> Counter:
    """How many claims that the long end can judge as well point which way there."""
    return Counter(agreement(row, end) for row in rows if (end := beside(row, ends)))
