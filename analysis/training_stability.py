"""Fig. 5a: training losses and gradient norms, spikes by a stated rule, and short runs at ever higher learning
rates.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.comparison import OWN_RATES, at_setting
from stemrepro.measures.losses import ArmLosses, arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.stability import (
    coincidence,
    counted,
    end,
    rate,
    rate_limit,
    sensitivity,
    short_runs,
    spike_steps,
    unlimited,
)
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, LESS, PLAIN, SMALLEST, draw_means, look, sheet
from stemrepro.verdicts.effect import Effect, of_share

SMOOTH = 20
"""Steps of the moving mean that is drawn."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return smoothed losses, spikes of losses and gradient norms, and where each learning rate ends."""
    rows = []
    for arm in scores.recipe.arms:
        run = arm_losses(scores, arm)
        steps = run.steps["loss"]
        smooth = np.stack([np.convolve(of_seed, np.ones(SMOOTH) / SMOOTH, "valid") for of_seed in steps])
        for step in range(0, smooth.shape[1], 10):
            rows.append(mean_row("loss", arm, step + SMOOTH, Effect(smooth[:, step])))
        for number, of_seed in enumerate(steps):
            rows += [
                {"panel": "spike", "what": arm, "x": int(at), "value": of_seed[at], "seed": number}
                for at in spike_steps(of_seed)
            ]
        rows += count_rows(arm, run, "")
        own = at_setting(scores, OWN_RATES, arm)
        if own and own is not run:
            rows += count_rows(arm, own, ", own rate")
        if arm != "dense":
            shares = coincidence(steps, arm_losses(scores, "dense").steps["loss"])
            rows += [
                {"panel": "spikes shared with dense", "what": arm, "x": x, "value": share}
                for x, share in zip(("same batches", "other batches"), shares, strict=True)
            ]
        if short := [*short_runs(scores, arm).values()]:
            rows += short_rows(arm, short, scores.scale.learning_rate)
        rows.append({"panel": "token frequencies", "what": arm, "value": run.summary["training_entropy"]})
    return pd.DataFrame(rows)


def count_rows(arm: str, runs: ArmLosses, kind: str) -> list[dict]:
    """Return spikes in a thousand steps of the losses and of the gradient norms."""
    series = {"loss": runs.steps["loss"], "gradient norm": runs.steps["norm"]}
    shares = {what: of_share(rate(of) / 10, counted(of)) for what, of in series.items()}
    return [mean_row(f"spikes{kind}", arm, what, share, 0.1) for what, share in shares.items()]


def short_rows(arm: str, runs: list[ArmLosses], base_rate: float) -> list[dict]:
    """Return where short runs at each learning rate end, and what follows from all of them."""
    beyond = unlimited(runs)
    return [
        *(mean_row("end", arm, run.summary["learning_rate"] / base_rate, Effect(end(run))) for run in runs),
        mean_row("limit", arm, "", Effect(rate_limit(runs, base_rate))),
        mean_row("sensitivity", arm, "", Effect(sensitivity(runs))),
        {"panel": "no limit", "what": arm, "value": beyond.sum(), "count": len(beyond)},
    ]


def draw_losses(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the smoothed training loss, mean over seeds.

    Ticks at the foot are steps that count as a spike in some seed of some arm.
    """
    for arm, rows in pick(data, panel="loss").groupby("what", sort=False):
        axes.plot(rows["x"], rows["value"], **look(arm), markevery=(6, 12), label=ARM_LABEL[arm])
    for at in sorted(pick(data, panel="spike")["x"].unique()):
        axes.axvline(at, ymax=0.04, color=PLAIN, lw=0.8)
    axes.plot([], [], "|", color=PLAIN, ms=5, label="step with a spike in some seed")
    lines = pick(data, panel="loss")["value"]
    axes.set_ylim(lines.min() - 0.3, lines.quantile(0.97) + 0.5)
    axes.set(xlabel="training step", ylabel=f"{LESS}, training loss\n(nats/token)")
    axes.legend(loc="upper right")


def draw_spikes(axes: Axes, data: pd.DataFrame) -> None:
    """Draw spikes in a thousand steps, of the loss and of the gradient norm."""
    rates = pick(data, panel="spikes")
    arms = list(dict.fromkeys(rates["what"]))
    for shift, what, hatch in ((-0.2, "loss", ""), (0.2, "gradient norm", "//")):
        rows = pick(rates, x=what).set_index("what").loc[arms]
        at = np.arange(len(arms)) + shift
        axes.barh(
            at, rows["value"], height=0.38, color=[ARM_COLOUR[arm] for arm in arms], hatch=hatch, edgecolor="white"
        )
        draw_means(axes, at, rows, sideways=True, color="black", lw=0.9, ls="none")
        axes.barh(0, 0, color=PLAIN, hatch=hatch, edgecolor="white", label=what)
    name_rows(axes, arms)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("spikes in 1,000 steps")
    axes.legend(loc="upper right")


def draw_ends(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the final training loss of short runs against the learning rate."""
    ends = pick(data, panel="end")
    for arm, rows in ends.groupby("what", sort=False):
        draw_means(axes, rows["x"].astype(float), rows, **look(arm), label=ARM_LABEL[arm])
    entropy = pick(data, panel="token frequencies")["value"].iloc[0]
    axes.axhline(entropy, color="black", lw=0.8, ls=":", label="token frequencies alone")
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(ends, what="dense")["x"].astype(float))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    numbers = ends[["value", "ci_low", "ci_high"]]
    low, high = np.nanmin(numbers), min(np.nanmax(numbers), 12)  # a run that blew up may leave the panel
    axes.set_ylim(low - 0.05 * (high - low), high + 0.35 * (high - low))  # room for the legend
    axes.set(xlabel="learning rate / the scale's", ylabel=f"{LESS}, last tenth's\ntraining loss (nats/token)")
    axes.legend(loc="upper left")


def draw_limits(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the learning rate from which on an arm learns no more than token frequencies."""
    rows = pick(data, panel="limit")
    draw_arms(axes, rows, "doublings of the scale's learning rate")
    for place, arm in enumerate(rows["what"]):
        count, seeds = pick(data, panel="no limit", what=arm)[["value", "count"]].iloc[0]
        if count:
            x = pick(rows, what=arm)["value"].iloc[0]
            axes.text(x, place - 0.2, f"{count:.0f} of {seeds:.0f} never", fontsize=SMALLEST, ha="center")
    axes.set_xlim(0, 1.15 * rows["ci_high"].max(skipna=True) if seeds > 1 else None)


def draw_arms(axes: Axes, rows: pd.DataFrame, label: str) -> None:
    """Draw a line per arm."""
    order = list(rows["what"])
    draw_forest(axes, rows, order, label)
    name_rows(axes, order)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw losses, spikes, ends of short runs at raised learning rates, and what follows from these."""
    titles = {
        "a": "Training losses",
        "b": "Spikes",
        "c": "Short runs at higher rates",
        "d": "Learning-rate limit",
        "e": "Sensitivity to the rate",
    }
    figure, grid = sheet("ab;cd;ce", 7.4, titles, height_ratios=(1.15, 1, 1))
    draw_losses(grid["a"], data)
    draw_spikes(grid["b"], data)
    draw_ends(grid["c"], data)
    draw_limits(grid["d"], data)
    draw_arms(grid["e"], pick(data, panel="sensitivity"), f"{LESS}, mean over rates\nless best (nats/token)")
    return figure
