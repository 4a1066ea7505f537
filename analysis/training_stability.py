"""Fig. 5a: the paper's training losses, one of our spikes, and short runs at ever higher learning rates."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.losses import ArmLosses, arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.stability import (
    SPIKES,
    WINDOW,
    coincidence,
    end,
    sensitivity,
    short_runs,
    spike_limits,
    spike_steps,
    spikes_expected,
)
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_DASHES,
    ARM_LABEL,
    LESS,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect

SHOWN = ("dense", "stem-third", "hash-moe")
"""Arms of the paper's figure, and those that are drawn at raised rates."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return the paper's losses and spikes, a spike of ours, and where short runs end at each learning rate."""
    rows = paper_rows(scores.catalog.paper) + spike_rows(scores)
    for arm in scores.recipe.arms:
        steps = arm_losses(scores, arm).steps["loss"]
        if arm != "dense":
            shares = coincidence(steps, arm_losses(scores, "dense").steps["loss"])
            rows += [
                {"panel": "spikes shared with dense", "what": arm, "x": x, "value": share}
                for x, share in zip(("same batches", "other batches"), shares, strict=True)
            ]
        if short := [*short_runs(scores, arm).values()]:
            rows += short_rows(arm, short, scores.scale.learning_rate)
    frequencies = arm_losses(scores, "dense").summary["training_entropy"]
    return pd.DataFrame([*rows, {"panel": "token frequencies", "what": "dense", "value": frequencies}])


def paper_rows(paper: Paper) -> list[dict]:
    """Return the paper's training losses, and where Hash-MoE's spikes are; `x` is in 1e11 tokens."""
    rows = [
        {"panel": "paper", "what": arm, "x": float(tokens), "value": value}
        for arm in SHOWN
        for tokens, value in paper.row(f"fig-5a/{arm}").items()
    ]
    spikes = (paper.value(f"fig-5a-spikes/hash-moe/{column}") for column in SPIKES)
    return rows + [{"panel": "paper, spike", "what": "hash-moe", "x": at} for at in spikes]


def spike_rows(scores: Scores) -> list[dict]:
    """Return losses around dense's first spike, and dense's limit; all runs saw the same batches. `x` is the step."""
    losses = {arm: arm_losses(scores, arm).steps["loss"] for arm in SHOWN}
    spikes = [(seed, int(step)) for seed, run in enumerate(losses["dense"]) for step in spike_steps(run)]
    if not spikes:
        return []
    seed, first = spikes[0]
    around = range(first - WINDOW, min(first + WINDOW, losses["dense"].shape[1]))
    limits, rows = spike_limits(losses["dense"][seed]), []
    for at in around:
        rows += [{"panel": "loss", "what": arm, "x": at, "value": runs[seed, at]} for arm, runs in losses.items()]
        rows.append({"panel": "limit", "what": "dense", "x": at, "value": limits[at]})
    for arm, runs in losses.items():
        count = sum(len(spike_steps(run)) for run in runs)
        rows.append({"panel": "spikes, all runs", "what": arm, "x": len(runs), "value": count})
        steps = [at for at in spike_steps(runs[seed]) if at in around]
        rows += [{"panel": "spike", "what": arm, "x": at, "value": runs[seed, at]} for at in steps]
    return rows


def short_rows(arm: str, runs: list[ArmLosses], base_rate: float) -> list[dict]:
    """Return where short runs at each learning rate end, and what follows from all of them."""
    return [
        *(mean_row("end", arm, run.summary["learning_rate"] / base_rate, Effect(end(run))) for run in runs),
        mean_row("sensitivity", arm, "", Effect(sensitivity(runs))),
    ]


def draw_paper(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the paper's training losses, with a mark above Hash-MoE's at each of its spikes."""
    ends = {}
    for arm, rows in pick(data, panel="paper").groupby("what", sort=False):
        axes.plot(rows["x"].astype(float), rows["value"], **look(arm))
        ends[ARM_LABEL[arm]] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    at = pick(data, panel="paper, spike")["x"].astype(float)
    axes.plot(at, np.full(len(at), 2.62), ls="none", marker="v", color=ARM_COLOUR["hash-moe"], ms=6)
    note(axes, "spikes of Hash-MoE", (at.max(), 2.62), (7, 0), color=ARM_COLOUR["hash-moe"])
    axes.set(xlabel="training tokens (hundred billions)", ylabel=f"{LESS}, training loss\n(nats/token)")
    name_ends(axes, ends)


def draw_spike(axes: Axes, data: pd.DataFrame) -> None:
    """Draw losses around a spike that dense has, the limit above which dense's counts as one, and which do."""
    losses, ends = pick(data, panel="loss"), {}
    if losses.empty:
        note(axes, "no spike", (0.5, 0.5), (0, 0), xycoords="axes fraction", ha="center")
        return
    for arm, rows in losses.groupby("what", sort=False):
        axes.plot(rows["x"].astype(float), rows["value"], color=ARM_COLOUR[arm], ls=ARM_DASHES[arm], lw=0.9)
        ends[ARM_LABEL[arm]] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    limit = pick(data, panel="limit")
    axes.plot(limit["x"].astype(float), limit["value"], color="black", lw=0.8, ls=":")
    right = limit["x"].astype(float).max(), limit["value"].max()
    note(axes, "threshold for a spike of dense", right, (0, 6), ha="right")
    spikes = pick(data, panel="spike")
    top = spikes.loc[spikes["value"].idxmax()]
    words = f"spikes: {', '.join(ARM_LABEL[arm] for arm in spikes['what'].unique())}"
    note(axes, words, (float(top["x"]), top["value"]), (6, 0))
    counts = pick(data, panel="spikes, all runs")
    told = ", ".join(f"{ARM_LABEL[row.what]} {row.value:.0f}" for row in counts.itertuples())
    axes.set(
        xlabel=f"training step (spikes in all {counts['x'].iloc[0]} runs:\n{told})",
        ylabel=f"{LESS}, training loss\n(nats/token)",
    )
    name_ends(axes, ends)


def draw_ends(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the final training loss of short runs against the learning rate."""
    ends, names = pick(data, panel="end"), {}
    for arm in SHOWN:
        rows = pick(ends, what=arm)
        draw_means(axes, rows["x"].astype(float), rows, **look(arm))
        names[ARM_LABEL[arm]] = rows["value"].iloc[-1], ARM_COLOUR[arm]
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(ends, what="dense")["x"].astype(float))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    entropy = pick(data, panel="token frequencies")["value"].iloc[0]
    axes.axhline(entropy, color="black", lw=0.8, ls=":")
    note(axes, "token frequencies alone", (ticks[0], entropy), (0, 6))
    numbers = ends[ends["what"].isin(SHOWN)][["value", "ci_low", "ci_high"]]
    low, high = np.nanmin(numbers), min(np.nanmax(numbers), 12)  # a run that blew up may leave the panel
    axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axes.set(xlabel="learning rate / the scale's", ylabel=f"{LESS}, last tenth's\ntraining loss (nats/token)")
    name_ends(axes, names)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the paper's losses, a spike of ours, ends of short runs at raised rates, and what the rate decides."""
    titles = {
        "a": "The paper's Fig. 5a (350M)",
        "b": "Ours: a spike, on one batch",
        "c": "Short runs at higher rates",
        "d": "Sensitivity to the rate",
    }
    figure, grid = sheet("ab;cd", 5.4, titles)
    draw_paper(grid["a"], data)
    draw_spike(grid["b"], data)
    draw_ends(grid["c"], data)
    rows = pick(data, panel="sensitivity")
    order = list(rows["what"])
    label = f"{LESS}, mean loss over rates (multiples of\nthe own one) less the best (nats/token)"
    draw_forest(grid["d"], rows, order, label)
    name_rows(grid["d"], order)
    headline(figure, "Too few loss spikes to compare", spikes_expected(scores) is not None, scores.recipe.title)
    return figure
