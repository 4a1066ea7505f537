"""The result of trials: each arm's best settings, those at an end of what was searched, and which fields decided."""

import math
from dataclasses import dataclass

import numpy as np
import optuna
import pandas as pd

from stemrepro.config.scale import TunedSettings
from stemrepro.sweeps.spec import Range, Space

NO_FIELDS = ("arm", "seed", "prose", "state")
END = 0.05
"""Share of a range, or of its logarithm where it is logarithmic, in which a best counts as at the end next to it."""
FEWEST = 5
"""Settings among the best that Optuna needs to tell which fields decided, and fewest of an arm."""


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Return each setting's mean loss over seeds, infinite where one diverged; pruned runs have none."""
    keys = [key for key in table.columns if key not in ("seed", "prose", "state")]
    return table[table["state"] != "pruned"].groupby(keys, as_index=False)["prose"].mean()


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """Return each arm's settings with the lowest mean loss over seeds; none for an arm that diverged at all of them."""
    losses = means(table)
    losses = losses[np.isfinite(losses["prose"])]
    return losses.loc[losses.groupby("arm")["prose"].idxmin()].reset_index(drop=True)


def tuned_lines(best: pd.DataFrame) -> list[str]:
    """Return the lines under `tuned` of a scale that give arms their best settings; none where no rate was searched."""
    keys = [key for key in TunedSettings.model_fields if key in best]
    if "learning_rate" not in keys:
        return []
    texts = best[keys].map(lambda value: value if isinstance(value, str) else f"{value:.6g}")
    return [
        f"  {arm}: {{{', '.join(f'{key}: {value}' for key, value in row.items())}}}"
        for arm, row in zip(best["arm"], texts.to_dict("records"), strict=True)
    ]


def best_by(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return each arm's lowest mean loss over seeds (rows) at each value of a key (columns); NaN where none is."""
    return means(table).pivot_table(index="arm", columns=key, values="prose", aggfunc="min")


def fields(table: pd.DataFrame, arm: str) -> list[str]:
    """Return the fields that an arm was tried at more than one value of."""
    rows = table[table["arm"] == arm]
    return [key for key in table.columns if key not in NO_FIELDS and rows[key].nunique() > 1]


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
    """Return where arms have their best at an end.

    An end is the lowest or highest of the values that the arm was tried at; in a range it is within `END` of one. Names
    have no order, and so no end.
    """
    result = []
    for row in best_settings(table).to_dict("records"):
        tried = table[table["arm"] == row["arm"]]
        for key in fields(table, row["arm"]):
            if not pd.api.types.is_numeric_dtype(tried[key]):
                continue
            values = space.get(key)
            if isinstance(values, Range):
                low, high, log, near = values.low, values.high, values.log, END
            else:
                low, high, log, near = tried[key].min(), tried[key].max(), False, 0.0
            at = share(row[key], low, high, log)
            if near < at < 1 - near:
                continue
            end = "lowest" if at <= near else "highest"
            place = (
                f"by the {end} of its range, {low:g} to {high:g}"
                if near
                else f"the {end} of the grid's {tried[key].nunique()}"
            )
            result.append(Edge(row["arm"], key, row[key], end, place))
    return result


def share(value: float, low: float, high: float, log: bool) -> float:
    """Return where a value lies between two others, 0 at the lower."""
    return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)


def sentences(ends: list[Edge]) -> list[str]:
    """Return edges as sentences; arms with the same edge share one."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for edge in ends:
        alike.setdefault((edge.key, f"{edge.value:g}", edge.place), []).append(edge.arm)
    return [
        f"{', '.join(arms)}: best at {key} {value}, {place}; a better one may lie beyond"
        for (key, value, place), arms in alike.items()
    ]


def importances(table: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Return how much each field decides whether a setting of an arm is among its best (PED-ANOVA by Optuna).

    Arms with one field have no rows, nor those with fewer than `FEWEST` settings that ended, or with equal losses.

    Returns:
        arm, field, importance; importances sum to 1 over the fields of an arm.
    """
    rows, ended = [], means(table)
    ended = ended[np.isfinite(ended["prose"])]
    for arm in dict.fromkeys(ended["arm"]):
        settings, keys = ended[ended["arm"] == arm], fields(table, arm)
        if len(keys) < 2 or len(settings) < FEWEST or settings["prose"].nunique() < 2:
            continue
        spans = {key: _distribution(space.get(key), settings[key]) for key in keys}
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for row in settings.to_dict("records"):
            params = {key: row[key] for key in keys}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=spans, value=row["prose"]))
        among = min(0.5, max(0.1, FEWEST / len(settings)))
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=among)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        rows += [{"arm": arm, "field": key, "importance": shares[key]} for key in keys]
    return pd.DataFrame(rows, columns=["arm", "field", "importance"])


def _distribution(values: object, tried: pd.Series) -> optuna.distributions.BaseDistribution:
    if isinstance(values, Range):
        return optuna.distributions.FloatDistribution(values.low, values.high, log=values.log)
    return optuna.distributions.CategoricalDistribution(sorted(tried.unique().tolist()))
