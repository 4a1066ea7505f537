"""Tables that studies of a published model, or of own runs, have made: scores/<scale>/<study>/<table>.parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stemrepro.common.files import damaged
from stemrepro.measures.scores import Scores, kept
from stemrepro.verdicts.effect import Unmeasured

if TYPE_CHECKING:
    import pandas as pd


@kept
def table(scores: Scores, study: str, name: str) -> pd.DataFrame:
    """Return a table of a study; UserError where it is missing or damaged."""
    import pandas as pd  # a third of a second that reading recipes can do without

    path = scores.folder / study / f"{name}.parquet"
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


@kept
def groups(scores: Scores, study: str, name: str, *columns: str) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Return the rows of a table by what these columns have, in ascending order."""
    return dict(iter(table(scores, study, name).groupby(list(columns))))


def rows(scores: Scores, study: str, name: str, **where: object) -> pd.DataFrame:
    """Return the rows of a table whose columns have these values; Unmeasured where there are none."""
    found = groups(scores, study, name, *where).get(tuple(where.values()))
    if found is None:
        what = ", ".join(f"{column} {value!r}" for column, value in where.items())
        raise Unmeasured(f"{scores.folder}/{study}/{name}.parquet has nothing of {what}")
    return found
