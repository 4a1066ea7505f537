"""What trials say: the best settings of each arm, where these lie at an end of what was searched, and which fields decided."""

import math
from dataclasses import dataclass

import numpy as np
import optuna
import pandas as pd

from stemrepro.sweeps.spec import Range, Space

NO_FIELDS = ("arm", "seed", "prose", "state")
END = 0.05
"""The part of a range next to an end, of its logarithm where the range is logarithmic, in which a best counts as at that end."""
FEWEST = 5
"""Settings among the best that Optuna asks for to tell which fields decided, and fewest of an arm."""


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Return mean loss of each setting over its seeds, infinite where one diverged; runs that were stopped early have none."""
    keys = [key for key in table.columns if key not in ("seed", "prose", "state")]
    return table[table["state"] != "pruned"].groupby(keys, as_index=False)["prose"].mean()


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """For each arm the settings with the lowest mean loss over seeds; none for an arm that diverged at all of them."""
    found = means(table)
    found = found[np.isfinite(found["prose"])]
    return found.loc[found.groupby("arm")["prose"].idxmin()].reset_index(drop=True)


def best_by(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return the lowest mean loss over seeds of each arm (rows) at each value of a key (columns); nan where an arm wasn't there."""
    return means(table).pivot_table(index="arm", columns=key, values="prose", aggfunc="min")


def fields(table: pd.DataFrame, arm: str) -> list[str]:
    """Return the fields that an arm was tried at more than one value of."""
    own = table[table["arm"] == arm]
    return [key for key in table.columns if key not in NO_FIELDS and own[key].nunique() > 1]


@dataclass(frozen=True)
class Edge:
    """A best that lies at an end of what was searched, so that a better one may lie beyond.

    Attributes:
        end: "lowest" or "highest".
        place: where that is, in words.
    """

    arm: str
    key: str
    value: float
    end: str
    place: str


def edges(table: pd.DataFrame, space: Space) -> list[Edge]:
    """Return where arms have their best at an end: at the lowest or highest of the values that the arm was tried at, or in a range within
    `END` of one. Names have no order, and so no end.
    """
    found = []
    for row in best_settings(table).to_dict("records"):
        own = table[table["arm"] == row["arm"]]
        for key in fields(table, row["arm"]):
            if not pd.api.types.is_numeric_dtype(own[key]):
                continue
            values, near = space.get(key), 0.0
            low, high, log = own[key].min(), own[key].max(), False
            if isinstance(values, Range):
                low, high, log, near = values.low, values.high, values.log, END
            at = share(row[key], low, high, log)
            if near < at < 1 - near:
                continue
            end = "lowest" if at <= near else "highest"
            place = (
                f"by the {end} of its range, {low:g} to {high:g}"
                if near
                else f"the {end} of the grid's {own[key].nunique()}"
            )
            found.append(Edge(row["arm"], key, row[key], end, place))
    return found


def share(value: float, low: float, high: float, log: bool) -> float:
    """Return where a value lies between two others, 0 at the lower."""
    return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)


def sentences(found: list[Edge]) -> list[str]:
    """Edges in sentences; arms of which the same is to be said in one."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for edge in found:
        alike.setdefault((edge.key, f"{edge.value:g}", edge.place), []).append(edge.arm)
    return [
        f"{', '.join(arms)}: best at {key} {value}, {place}; a better one may lie beyond"
        for (key, value, place), arms in alike.items()
    ]


def importances(table: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Return how much each field decides whether a setting of an arm is among its best (PED-ANOVA by Optuna): arm, field, importance, which sum
    to 1 over the fields of an arm. None of arms with one field, or with fewer than `FEWEST` settings that ended, or all alike.
    """
    rows, ended = [], means(table)
    ended = ended[np.isfinite(ended["prose"])]
    for arm in dict.fromkeys(ended["arm"]):
        own, keys = ended[ended["arm"] == arm], fields(table, arm)
        if len(keys) < 2 or len(own) < FEWEST or own["prose"].nunique() < 2:
            continue
        spans = {key: _distribution(space.get(key), own[key]) for key in keys}
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for line in own.to_dict("records"):
            params = {key: line[key] for key in keys}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=spans, value=line["prose"]))
        among = min(0.5, max(0.1, FEWEST / len(own)))
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=among)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        rows += [{"arm": arm, "field": key, "importance": shares[key]} for key in keys]
    return pd.DataFrame(rows, columns=["arm", "field", "importance"])


def _distribution(values: object, tried: pd.Series) -> optuna.distributions.BaseDistribution:
    if isinstance(values, Range):
        return optuna.distributions.FloatDistribution(values.low, values.high, log=values.log)
    return optuna.distributions.CategoricalDistribution(sorted(tried.unique().tolist()))
