"""The results of a sweep: every trial, each arm's best settings, those at an end of what was searched, and figures."""

import math
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import optuna
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.visualization import matplotlib as drawn

from stemrepro.common.files import atomic_write
from stemrepro.config.arm import Arm
from stemrepro.config.scale import TunedSettings
from stemrepro.report.style import plt, render, settle, use_style
from stemrepro.sweeps.spec import Range, Space, Sweep

NO_FIELDS = ("number", "arm", "seed", "prose", "state")
END = 0.05
"""Share of a range, or of its logarithm where it is logarithmic, in which a best counts as at the end next to it."""
FEWEST = 8
"""Settings that ended, which Optuna needs to tell what decided."""
LOSS = "prose loss, tune split (nats/token)"


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Return each setting's mean loss over seeds, infinite where one diverged; pruned runs have none."""
    keys = [key for key in table.columns if key not in ("number", "seed", "prose", "state")]
    return table[table["state"] != "pruned"].groupby(keys, as_index=False, sort=False)["prose"].mean()


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


def fields(table: pd.DataFrame) -> list[str]:
    """Return the fields that were tried at more than one value."""
    return [key for key in table.columns if key not in NO_FIELDS and table[key].nunique() > 1]


def edges(table: pd.DataFrame, space: Space) -> list[tuple[str, str, float, str]]:
    """Return arm, field, value and "lowest" or "highest" where an arm has its best at an end, as one beyond may be better.

    An end is the lowest or highest of the values that the arm was tried at; in a range it is within `END` of one. Names
    have no order, and so no end.
    """
    result = []
    for row in best_settings(table).to_dict("records"):
        tried = table[table["arm"] == row["arm"]]
        for key in fields(tried):
            if not pd.api.types.is_numeric_dtype(tried[key]):
                continue
            values, value = space.get(key), row[key]
            if isinstance(values, Range):
                low, high, log, near = values.low, values.high, values.log, END
            else:
                low, high, log, near = tried[key].min(), tried[key].max(), False, 0.0
            at = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
            if not near < at < 1 - near:
                result.append((row["arm"], key, value, "lowest" if at <= near else "highest"))
    return result


def best_table(table: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Return the best settings, and in `at_edge` the fields of which they are at an end."""
    best, ends = best_settings(table), edges(table, space)
    words = {arm: "; ".join(f"{key} {end}" for at, key, _, end in ends if at == arm) for arm in best["arm"]}
    return best.assign(at_edge=best["arm"].map(words))


def study_of(table: pd.DataFrame, space: Space, name: str = "") -> optuna.Study:
    """Return trials that ended as a study in memory, with arms as a field where there are several."""
    ended = table[np.isfinite(table["prose"]) & (table["state"] != "pruned")]
    keys = [*(["arm"] if ended["arm"].nunique() > 1 else []), *fields(ended)]
    spans = {
        key: FloatDistribution(values.low, values.high, log=values.log)
        if isinstance(values := space.get(key), Range)
        else CategoricalDistribution(sorted(ended[key].unique().tolist()))
        for key in keys
    }
    study = optuna.create_study(study_name=name or None, sampler=optuna.samplers.RandomSampler(seed=0))
    for row in ended.to_dict("records"):
        params = {key: row[key] for key in keys}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spans, value=row["prose"]))
    return study


def losses_figure(table: pd.DataFrame) -> Figure:
    """Draw the tune loss against each field, a dot a trial; arms are rows, or panels where there is one field."""
    ended, keys = table[np.isfinite(table["prose"]) & (table["state"] != "pruned")], fields(table)
    numbers = [key for key in keys if pd.api.types.is_numeric_dtype(table[key])] or ["learning_rate"]
    long = ended.melt(["arm", "prose"], numbers, "field", "value")
    panels = {"row": "arm", "col": "field"} if len(numbers) > 1 else {"col": "arm", "col_wrap": 4}
    share = {"sharex": "col" if len(numbers) > 1 else True, "sharey": "row" if len(numbers) > 1 else True}
    grid = sns.relplot(long, x="value", y="prose", **panels, facet_kws=share, height=1.8, s=14)
    grid.set_titles(template="{col_name}", col_template="{col_name}", row_template="{row_name}")
    for (_, _, facet), axes in ((key, axes) for key, axes in zip(grid.facet_data(), grid.axes.flat, strict=False)):
        if len(facet) and facet["value"].min() > 0 and facet["value"].max() > 3 * facet["value"].min():
            axes.set_xscale("log")
    grid.set_axis_labels("" if len(numbers) > 1 else numbers[0].replace("_", " "), LOSS)
    return grid.figure
