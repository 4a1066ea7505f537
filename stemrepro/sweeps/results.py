"""What a sweep leaves behind: every trial, the best settings of each arm, and figures."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import optuna
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from stemrepro.arm import Arm
from stemrepro.files import atomic_write, write_json
from stemrepro.provenance import provenance
from stemrepro.report.style import ARM_LABEL, footer, plt, render, settle, use_style
from stemrepro.sweeps.spec import Range, Sweep
from stemrepro.unpacked import bundled


def _means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean loss of each setting over its seeds, infinite where one diverged; runs that were stopped early have none."""
    keys = [key for key in table.columns if key not in ("seed", "prose", "state")]
    return table[table["state"] != "pruned"].groupby(keys, as_index=False)["prose"].mean()


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """For each arm the settings with the lowest mean loss over seeds; none for an arm that diverged at all of them."""
    means = _means(table)
    means = means[np.isfinite(means["prose"])]
    return means.loc[means.groupby("arm")["prose"].idxmin()].reset_index(drop=True)


def best_by(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """The lowest mean loss over seeds of each arm (rows) at each value of a key (columns); nan where an arm wasn't there."""
    means = _means(table)
    return means.pivot_table(index="arm", columns=key, values="prose", aggfunc="min")


def rate_figure(table: pd.DataFrame) -> Figure:
    """Tune loss against the learning rate, a panel an arm: one line a table factor, darker for a higher one, the mean over seeds and
    each seed as a dot, the best as a ring; grey lines are dense, for comparison. A setting with a seed that diverged has no mean, an arm
    that diverged at all of them no panel."""
    factors = sorted(table.get("table_rate_factor", pd.Series([1.0])).unique())
    shades = sns.color_palette("crest", len(factors))
    table = table[table["state"] != "pruned"]
    best = best_settings(table).set_index("arm")
    arms = [arm for arm in dict.fromkeys(table["arm"]) if arm in best.index]
    columns = min(4, max(1, len(arms)))
    rows = -(-max(1, len(arms)) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(7.4 / 4 * max(2.4, columns), 1.95 * rows),
        sharex=True,
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))
    dense = table[table["arm"] == "dense"].groupby("learning_rate")["prose"].mean()
    for axes, arm in zip(grid.flat, arms, strict=False):
        axes.plot(dense.index, dense, color="#b0b0b0", lw=1)
        for factor, shade in zip(factors, shades, strict=True):
            own = table[table["arm"] == arm]
            own = own[own["table_rate_factor"] == factor] if "table_rate_factor" in own else own
            if own.empty:
                continue
            means = own.groupby("learning_rate")["prose"].mean()
            axes.plot(means.index, means, color=shade, lw=1.3)
            axes.plot(own["learning_rate"], own["prose"], "o", color=shade, ms=2)
        axes.plot(best.loc[arm, "learning_rate"], best.loc[arm, "prose"], "o", mfc="none", mec="black", ms=7)
        axes.set_title(ARM_LABEL.get(arm, arm).replace(" (control)", ""), fontsize=8)
        axes.set_xscale("log", base=2)
        ticks = sorted(table["learning_rate"].unique())
        axes.set_xticks(ticks, [f"{1000 * tick:g}" for tick in ticks], fontsize=7)
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    for axes in grid.flat[len(arms) :]:
        axes.set_visible(False)
    for axes in grid.flat[max(0, len(arms) - columns) : len(arms)]:
        axes.tick_params(labelbottom=True)  # where an incomplete last row leaves a column's end above it
    if len(factors) > 1:
        for factor, shade in zip(factors, shades, strict=True):
            grid.flat[0].plot([], [], color=shade, label=f"{factor:g}")
        grid.flat[0].legend(fontsize=6, title="table rate x", title_fontsize=6, ncols=2)
    aside = {} if columns == 4 else {"x": 0.12, "ha": "left"}  # in a narrow figure the footer would stand in it
    figure.supxlabel("learning rate (thousandths)", fontsize=8, **aside)
    figure.supylabel("prose loss, tune split (nats/token)", fontsize=8)
    return figure


def search_figure(study: optuna.Study, kind: str) -> Figure:
    """Optuna's own picture of an open search: "importances" of the fields, or "parallel" coordinates of the trials."""
    if kind == "importances":
        axes = optuna.visualization.matplotlib.plot_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    else:
        axes = optuna.visualization.matplotlib.plot_parallel_coordinate(study)
    figure = axes.figure
    figure.set_size_inches(7.4, 4)
    figure.tight_layout()
    return figure


def slices_figure(table: pd.DataFrame, keys: list[str]) -> Figure:
    """Tune loss against each field of an open search, a row an arm: every trial a dot (pruned ones hollow, at the loss they were stopped
    with), the best a ring."""
    arms, table = list(dict.fromkeys(table["arm"])), table[np.isfinite(table["prose"])]
    best = best_settings(table).set_index("arm")
    figure, grid = plt.subplots(
        len(arms), len(keys), figsize=(7.4, 1.25 * len(arms) + 0.6), sharex="col", sharey="row",
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for arm, line in zip(arms, grid, strict=True):
        own = table[(table["arm"] == arm) & (table["state"] == "complete")]
        cut = table[(table["arm"] == arm) & (table["state"] == "pruned")]
        for key, axes in zip(keys, line, strict=True):
            if own[key].nunique() > 1:
                axes.plot(cut[key], cut["prose"], "o", ms=2.5, mfc="none", mec="#b0b0b0")
                axes.plot(own[key], own["prose"], "o", ms=2.5, color="#0173b2")
                axes.plot(best.loc[arm, key], best.loc[arm, "prose"], "o", mfc="none", mec="black", ms=7)
            if (table[key] > 0).all() and table[key].max() > 3 * table[key].min():
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(mpl.ticker.LogLocator(numticks=4, subs=(1, 3)))
                axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
                axes.xaxis.set_major_formatter("{x:g}")
            axes.tick_params(labelsize=6.5)
        low, high = own["prose"].min(), own["prose"].quantile(0.75)
        line[0].set_ylim(low - 0.1 * (high - low), high + 0.5 * (high - low))
        line[0].set_ylabel(ARM_LABEL.get(arm, arm).replace(" (control)", ""), fontsize=7)
    for key, axes in zip(keys, grid[-1], strict=True):
        axes.set_xlabel(key.replace("_", "\n"), fontsize=7)
    figure.supylabel("prose loss, tune split (nats/token)", fontsize=8)
    return figure


def open_figures(studies: dict[str, optuna.Study], sweep: Sweep, table: pd.DataFrame) -> dict[str, Figure]:
    """By name: slices, and of each arm's study importances and parallel coordinates; none where all trials came out the same."""
    if len(np.unique(table["prose"].replace(np.inf, np.nan).dropna())) < 2:
        return {}
    keys = [key for key, values in sweep.space.items() if isinstance(values, Range)]
    figures = {"figure": slices_figure(table, keys)}
    for name, study in studies.items():
        end = f"-{name.partition('@')[2]}" if len(studies) > 1 else ""
        figures |= {f"{kind}{end}": search_figure(study, kind) for kind in ("importances", "parallel")}
    return figures


def write_results(
    studies: dict[str, optuna.Study], sweep: Sweep, table: pd.DataFrame, folder: Path, arms: dict[str, Arm]
) -> None:
    """Writes data.csv (every setting), best.csv, provenance.json and figures: loss against rate of a grid; slices, importances and
    parallel coordinates of an open search."""
    atomic_write(folder / "data.csv", table.to_csv(index=False, float_format="%.6g"))
    atomic_write(folder / "best.csv", best_settings(table).to_csv(index=False, float_format="%.6g"))
    use_style(arms)
    if sweep.sampler == "grid":
        figures = {"figure": rate_figure(table)}
        seeds = table["seed"].nunique()
        footer(figures["figure"], f"{seeds} seed{'' if seeds == 1 else 's'} a setting, none of which a recipe uses")
        settle(figures["figure"])
    else:
        figures = open_figures(studies, sweep, table)
    for name, figure in figures.items():
        for kind in ("pdf", "svg", "png"):
            atomic_write(folder / f"{name}.{kind}", render(figure, kind))
        plt.close(figure)
    write_json(folder / "provenance.json", provenance() | bundled() | {"trials": len(table)})
