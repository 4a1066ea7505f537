"""The results of a sweep: every trial, each arm's best settings, and figures."""

import warnings
from collections.abc import Iterator
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import cast

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optuna
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.visualization import matplotlib as drawn

from stemrepro.common.files import atomic_write
from stemrepro.config.scale import TunedSettings
from stemrepro.report.style import render, settle, use_style
from stemrepro.sweeps.trials import Range, Space, Sweep, ranges_of

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
        for key in (key for key in fields(tried) if pd.api.types.is_numeric_dtype(tried[key])):
            span, low, at, high = space.get(key), tried[key].min(), row[key], tried[key].max()
            if is_range := isinstance(span, Range):
                low, at, high = np.log([span.low, at, span.high]) if span.log else (span.low, at, span.high)
            share, near = (at - low) / (high - low), END if is_range else 0.0
            ends += [f"{key} lowest"] if share <= near else [f"{key} highest"] if share >= 1 - near else []
        at_edge.append("; ".join(ends))
    return best.assign(at_edge=at_edge)


def tuned_lines(best: pd.DataFrame) -> list[str]:
    """Return the lines under `tuned` of a scale that give arms their best settings."""
    texts = best.map(lambda value: value if isinstance(value, str) else f"{value:.6g}").to_dict("records")
    keys = [key for key in signature(TunedSettings).parameters if key in best]
    return [f"  {row['arm']}: {{{', '.join(f'{key}: {row[key]}' for key in keys)}}}" for row in texts]


def study_of(rows: pd.DataFrame, space: Space) -> optuna.Study:
    """Return rows of `ended` as a study in memory, by their loss above the best of their arm."""
    spans: dict[str, BaseDistribution] = {
        key: CategoricalDistribution(sorted(rows[key].unique().tolist())) for key in fields(rows)
    }
    spans |= {key: FloatDistribution(**asdict(span)) for key, span in ranges_of(space).items() if key in spans}
    study = optuna.create_study(study_name="all")
    for row in rows.to_dict("records"):
        params = {key: row[key] for key in spans}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spans, value=row["excess"]))
    return study


def figures(sweep: Sweep, table: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Draw the loss against the learning rate by arm; of more fields Optuna's parallel coordinates and importances."""
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
        study = study_of(rows, sweep.space)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
        yield "parallel", cast(Figure, drawn.plot_parallel_coordinate(study).figure)
        yield "importances", cast(Figure, drawn.plot_param_importances(study, evaluator).figure)


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
