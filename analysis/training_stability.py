"""Fig. 5a: the paper's training losses, our spikes by a stated rule, and short runs at ever higher learning rates."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.losses import ArmLosses, arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.stability import (
    SPIKES,
    coincidence,
    counted,
    end,
    rate,
    sensitivity,
    short_runs,
)
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    LESS,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Effect, of_share

SHOWN = ("dense", "stem-third", "hash-moe")
"""Arms of the paper's figure, and those that are drawn at raised rates."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return the paper's losses and spikes, our spikes, and where short runs end at each learning rate."""
    rows = paper_rows(scores.catalog.paper)
    for arm in scores.recipe.arms:
        run = arm_losses(scores, arm)
        steps = run.steps["loss"]
        rows.append(mean_row("spikes", arm, "loss", of_share(rate(steps) / 10, counted(steps)), 0.1))
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


def draw_spikes(axes: Axes, data: pd.DataFrame) -> None:
    """Draw loss spikes in a thousand steps, and write whether they fall on the same batches as dense's."""
    rows = pick(data, panel="spikes")
    axes.barh(range(len(rows)), rows["value"], height=0.5, color=[ARM_COLOUR[arm] for arm in rows["what"]])
    draw_means(axes, range(len(rows)), rows, sideways=True, color="black", lw=0.9, ls="none")
    name_rows(axes, list(rows["what"]))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("loss spikes in 1,000 steps")
    shares = 100 * pick(data, panel="spikes shared with dense").groupby("x")["value"].mean()
    if shares.notna().all():
        same, other = shares["same batches"], shares["other batches"]
        words = f"dense shares {same:.0f}% of the others' spikes\non the same batches,\n{other:.0f}% on other batches"
        note(axes, words, (0.99, 0.82), (0, 0), xycoords="axes fraction", ha="right")


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
    """Draw the paper's losses, our spikes, ends of short runs at raised learning rates, and what the rate decides."""
    titles = {
        "a": "The paper's Fig. 5a (350M)",
        "b": "Too few spikes to compare",
        "c": "Short runs at higher rates",
        "d": "Sensitivity to the rate",
    }
    figure, grid = sheet("ab;cd", 5.4, titles)
    draw_paper(grid["a"], data)
    draw_spikes(grid["b"], data)
    draw_ends(grid["c"], data)
    rows = pick(data, panel="sensitivity")
    order = list(rows["what"])
    draw_forest(grid["d"], rows, order, f"{LESS}, mean loss over rates\nless the best (nats/token)")
    name_rows(grid["d"], order)
    lost = rows.set_index("what")["value"]
    message = "Too few loss spikes to compare; a wrong rate costs STEM 1/3 less than dense in the mean"
    headline(figure, message, bool(lost["stem-third"] < lost["dense"]), scores.recipe.title)
    return figure
