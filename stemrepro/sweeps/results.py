"""The results of a sweep: every trial, each arm's best settings, those at an end of what was searched, and figures."""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import optuna
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.visualization import matplotlib as drawn

from stemrepro.common.files import atomic_write
from stemrepro.config.scale import TunedSettings
from stemrepro.report.style import plt, render, settle, use_style
from stemrepro.sweeps.spec import Range, Space, Sweep

END = 0.05
"""Share of a range, or of its logarithm where it is logarithmic, in which a best counts as at the end next to it."""


def ended(table: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with a finite loss, in nats per token, and in `excess` that above the lowest of their arm."""
    rows = table[np.isfinite(table["prose"]) & (table["state"] != "pruned")]
    return rows.assign(excess=rows["prose"] - rows.groupby("arm")["prose"].transform("min"))


def fields(table: pd.DataFrame) -> list[str]:
    """Return the fields that were tried at more than one value."""
    keys = [key for key in table.columns if key not in ("number", "arm", "seed", "prose", "state", "excess")]
    return [key for key in keys if table[key].nunique() > 1]


def best_settings(table: pd.DataFrame, space: Space) -> pd.DataFrame:
    """Return each arm's settings with the lowest mean loss over seeds; none for an arm that diverged at all of them.

    `at_edge` names the fields in which they are the lowest or highest that the arm was tried at, or within `END` of
    the end of a range: a better one may lie beyond. Names have no order, and so no end.
    """
    kept = table[table["state"] != "pruned"]
    keys = [key for key in table.columns if key not in ("number", "seed", "prose", "state")]
    losses = kept.groupby(keys, as_index=False, sort=False)["prose"].mean()  # infinite where one seed diverged
    losses = losses[np.isfinite(losses["prose"])]
    best = losses.loc[losses.groupby("arm")["prose"].idxmin()].reset_index(drop=True)
    at_edge = []
    for row in best.to_dict("records"):
        tried, ends = table[table["arm"] == row["arm"]], []
        for key in fields(tried):
            if not pd.api.types.is_numeric_dtype(tried[key]):
                continue
            values, at = space.get(key), row[key]
            low, high, near = tried[key].min(), tried[key].max(), 0.0
            if isinstance(values, Range):
                low, high, near = values.low, values.high, END
                if values.log:
                    low, high, at = math.log(low), math.log(high), math.log(at)
            share = (at - low) / (high - low)
            ends += [f"{key} lowest"] if share <= near else [f"{key} highest"] if share >= 1 - near else []
        at_edge.append("; ".join(ends))
    return best.assign(at_edge=at_edge)


def tuned_lines(best: pd.DataFrame) -> list[str]:
    """Return the lines under `tuned` of a scale that give arms their best settings."""
    texts = best.map(lambda value: value if isinstance(value, str) else f"{value:.6g}").to_dict("records")
    keys = [key for key in TunedSettings.model_fields if key in best]
    return [f"  {row['arm']}: {{{', '.join(f'{key}: {row[key]}' for key in keys)}}}" for row in texts]


def study_of(rows: pd.DataFrame, space: Space, value: str, name: str) -> optuna.Study:
    """Return rows of `ended` as a study in memory, with one of their losses as the value."""
    study = optuna.create_study(study_name=name)
    spans: dict[str, BaseDistribution] = {}
    for key in fields(rows):
        if isinstance(span := space.get(key), Range):
            spans[key] = FloatDistribution(span.low, span.high, log=span.log)
        else:
            spans[key] = CategoricalDistribution(sorted(rows[key].unique().tolist()))
    for row in rows.to_dict("records"):
        params = {key: row[key] for key in spans}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spans, value=row[value]))
    return study


def figures(sweep: Sweep, table: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Draw the figures of a sweep, each with its name; none where nothing ended.

    The first has the loss against the learning rate, a panel an arm. The others are Optuna's: of two fields or more
    parallel coordinates and importances, by the loss above the best of the arm; the history of a search of 10 arms at
    most, which are its colours.
    """
    if (rows := ended(table)).empty:
        return
    kind = {"kind": "line", "errorbar": None} if len(fields(rows)) < 2 else {"kind": "scatter"}
    columns = min(4, rows["arm"].nunique())
    grid = sns.relplot(rows, x="learning_rate", y="prose", col="arm", col_wrap=columns, height=1.8, marker="o", **kind)
    grid.set_titles("{col_name}").set(xscale="log").set_axis_labels("learning rate", "tune loss (nats/token)")
    for axes in grid.axes.flat:
        axes.xaxis.set_major_locator(mpl.ticker.LogLocator(numticks=4, subs=(1, 3)))
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
    yield "figure", grid.figure
    if len(fields(rows)) > 1 and rows["excess"].nunique() > 1:
        study = study_of(rows, sweep.space, "excess", "all")
        yield "parallel", drawn.plot_parallel_coordinate(study).figure
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
        yield "importances", drawn.plot_param_importances(study, evaluator).figure
    if sweep.sampler == "tpe" and "number" in table and rows["arm"].nunique() <= 10:
        arms = [study_of(of_arm, sweep.space, "prose", arm) for arm, of_arm in rows.groupby("arm", sort=False)]
        yield "history", drawn.plot_optimization_history(arms).figure


def write_results(sweep: Sweep, table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Write data.csv (every setting), best.csv and the figures; return the best settings."""
    best = best_settings(table, sweep.space)
    atomic_write(folder / "data.csv", table.to_csv(index=False, float_format="%.6g"))
    atomic_write(folder / "best.csv", best.to_csv(index=False, float_format="%.6g"))
    use_style({})
    with warnings.catch_warnings(), mpl.rc_context():  # Optuna calls its figures experimental, and sets a style
        warnings.simplefilter("ignore")
        for name, figure in figures(sweep, table):
            if name != "figure":
                figure.set_size_inches(11, 5)
            settle(figure)
            atomic_write(folder / f"{name}.svg", render(figure, "svg"))
            plt.close(figure)
    return best
