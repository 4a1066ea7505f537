"""Claims of a scale next to the same comparison at every rung of the token ladder.

Rungs are those of recipes/token_ladder.yaml, up to where training is longest.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from stemrepro.common.files import damaged

LONG_END = Path("ladder/token_ladder/data.csv")
"""Below results/: gaps where training is longest, which the pages of other scales show next to theirs."""
PAIR = "pair"
"""Panel of the lines that hold the gap of two arms, "high - low", one line per rung."""
SAME, OTHER, OPEN = "points the same way there", "points the other way there", "is open in one of the two"


@dataclass(frozen=True)
class Rung:
    """Prose loss of one arm less that of another at a rung, with its 95% interval.

    Attributes:
        tokens_a_parameter: tokens per parameter, over all parameters of dense, as the paper counts them.
    """

    mean: float
    low: float
    high: float
    tokens_a_parameter: float

    def reversed(self) -> "Rung":
        """Return the same rung with both arms swapped."""
        return Rung(-self.mean, -self.high, -self.low, self.tokens_a_parameter)


Ladder = dict[tuple[str, str], tuple[Rung, ...]]
"""Every pair of arms, in both orders -> its rungs, the longest training last."""


def read_ladder(results: Path) -> Ladder:
    """Return all pairs of arms of the ladder; an empty dict where its file is missing.

    Raises:
        UserError: the file is damaged.
    """
    path = results / LONG_END
    if not path.exists():
        return {}
    ladder: dict[tuple[str, str], list[Rung]] = {}
    try:
        rows = pd.read_csv(path)
        for row in rows[rows["panel"] == PAIR].itertuples():
            high, low = row.what.split(" - ")
            rung = Rung(*map(float, (row.value, row.ci_low, row.ci_high, row.x)))
            ladder.setdefault((high, low), []).append(rung)
            ladder.setdefault((low, high), []).append(rung.reversed())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from error
    return {pair: tuple(sorted(rungs, key=lambda rung: rung.tokens_a_parameter)) for pair, rungs in ladder.items()}


def rungs_of(row: dict, ladder: Ladder) -> tuple[Rung, ...]:
    """Return the rungs of a claim about the prose losses of two arms.

    Other claims have none, nor have claims that were not measured or belong to the ladder itself.
    """
    if row["metric"] != "prose" or row["ci_low"] is None or row["scale"] == LONG_END.parts[0]:
        return ()
    return ladder.get(tuple(row["arms"]), ())


def agreement(row: dict, end: Rung) -> str:
    """Say whether the interval of a claim lies on the same side of 0 as that of a rung."""
    signs = [int(low > 0) - int(high < 0) for low, high in ((row["ci_low"], row["ci_high"]), (end.low, end.high))]
    if 0 in signs:
        return OPEN
    return SAME if signs[0] == signs[1] else OTHER


def counted(rows: list[dict], ladder: Ladder) -> Counter:
    """Count the claims with a last rung by whether they agree with it."""
    pairs = [(row, rungs_of(row, ladder)) for row in rows]
    return Counter(agreement(row, rungs[-1]) for row, rungs in pairs if rungs)
