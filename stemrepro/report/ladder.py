"""Claims of a scale beside the same comparison at every rung of recipes/token_ladder.yaml, up to where training is longest."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from stemrepro.common.files import damaged
from stemrepro.verdicts.robustness import LONG_END

PAIR = "pair"
"""Panel of the lines that hold one gap of two arms at one rung each, "high - low"."""
SAME, OTHER, OPEN = "points the same way there", "points the other way there", "is open in one of the two"


@dataclass(frozen=True)
class Rung:
    """Prose loss of one arm less that of another at a rung, with its 95% interval.

    Attributes:
        tokens_a_parameter: all of dense's, as the paper counts them.
    """

    mean: float
    low: float
    high: float
    tokens_a_parameter: float

    def reversed(self) -> "Rung":
        """Return the same with the arms the other way round."""
        return Rung(-self.mean, -self.high, -self.low, self.tokens_a_parameter)


Ladder = dict[tuple[str, str], tuple[Rung, ...]]
"""Every pair of arms, both ways round -> its rungs, the longest training last."""


def read_ladder(results: Path) -> Ladder:
    """Return all pairs of arms of the ladder; none where its file is missing.

    Raises:
        UserError: the file is damaged.
    """
    path = results / LONG_END
    if not path.exists():
        return {}
    found: dict[tuple[str, str], list[Rung]] = {}
    try:
        rows = pd.read_csv(path)
        for row in rows[rows["panel"] == PAIR].itertuples():
            high, low = row.what.split(" - ")
            rung = Rung(*map(float, (row.value, row.ci_low, row.ci_high, row.x)))
            found.setdefault((high, low), []).append(rung)
            found.setdefault((low, high), []).append(rung.reversed())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from error
    return {pair: tuple(sorted(rungs, key=lambda own: own.tokens_a_parameter)) for pair, rungs in found.items()}


def beside(row: dict, ladder: Ladder) -> tuple[Rung, ...]:
    """Return the rungs of a claim about two arms' prose losses; none of any other claim, of one that was not measured, and at the ladder itself."""
    if (
        row["metric"] != "prose"
        or row["kind"] == "ordering"
        or row["ci_low"] is None
        or row["scale"] == LONG_END.parts[0]
    ):
        return ()
    return ladder.get(tuple(row["arms"]), ())


def agreement(row: dict, end: Rung) -> str:
    """Does the interval of a claim lie on the same side of 0 as a rung's?"""
    signs = [int(low > 0) - int(high < 0) for low, high in ((row["ci_low"], row["ci_high"]), (end.low, end.high))]
    return OPEN if 0 in signs else SAME if signs[0] == signs[1] else OTHER


def counted(rows: list[dict], ladder: Ladder) -> Counter:
    """Return how many claims that the ladder's last rung can judge as well point which way there."""
    return Counter(agreement(row, rungs[-1]) for row in rows if (rungs := beside(row, ladder)))
