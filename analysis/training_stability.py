"""Fig. 5a: training losses and gradient norms, spikes by a stated rule, and short runs at ever higher learning
rates.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.comparison import OFFICIAL_INIT, OWN_RATES, at_setting
from stemrepro.measures.losses import ArmLosses, arm_losses
from stemrepro.measures.scores import Scores
from stemrepro.measures.stability import (
    blown_up_share,
    coincidence,
    counted,
    end,
    long_runs,
    rate,
    rate_limit,
    sensitivity,
    short_runs,
    spike_steps,
    unlimited,
)
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, LESS, PLAIN, SMALLEST, draw_means, look, sheet
from stemrepro.verdicts.effect import Effect, of_share

SMOOTH = 20
"""Steps of the moving mean that is drawn."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return smoothed losses, spikes of losses and gradient norms, and where each learning rate ends."""
    rows, vocab = [], scores.scale.model.vocab
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
        for setting in (OWN_RATES, OFFICIAL_INIT):
            other = at_setting(scores, setting, arm)
            if other and other is not run:
                rows += count_rows(arm, other, f", {setting.replace('-', ' ')}")
        if arm != "dense":
            shares = coincidence(steps, arm_losses(scores, "dense").steps["loss"])
            rows += [
                {"panel": "spikes shared with dense", "what": arm, "x": x, "value": share}
                for x, share in zip(("same batches", "other batches"), shares, strict=True)
            ]
        if short := short_runs(scores, arm):
            rows += short_rows(scores, arm, own=False)
            rows += short_rows(scores, arm, own=True) if short_runs(scores, arm, own=True) != short else []
        if long := long_runs(scores, arm):
            rows.append(blow_up_row("long blow-ups", arm, long, vocab))
        rows.append({"panel": "token frequencies", "what": arm, "value": run.summary["training_entropy"]})
    return pd.DataFrame(rows)


def count_rows(arm: str, runs: ArmLosses, kind: str) -> list[dict]:
    """Return spikes in a thousand steps of the losses and of the gradient norms."""
    series = {"loss": runs.steps["loss"], "gradient norm": runs.steps["norm"]}
    shares = {what: of_share(rate(of) / 10, counted(of)) for what, of in series.items()}
    return [mean_row(f"spikes{kind}", arm, what, share, 0.1) for what, share in shares.items()]


def blow_up_row(panel: str, arm: str, runs: dict[str, ArmLosses], vocab: int) -> dict:
    """Return how many of an arm's runs blew up, over all rates and seeds."""
    share = blown_up_share(runs.values(), vocab)
    count = len(share) * len(runs)
    return {"panel": panel, "what": arm, "value": round(share.mean() * count), "count": count}


def short_rows(scores: Scores, arm: str, own: bool) -> list[dict]:
    """Return where short runs at each learning rate end, and what follows from all of them; `own`: at own rates."""
    base_rate, variants = scores.scale.learning_rate, scores.catalog.variants
    every, clipped = short_runs(scores, arm, own, clipped=False), list(short_runs(scores, arm, own).values())
    rows, mark = [], ", own" if own else ""
    for name, run in every.items():
        kind = "own" if own else "clipped" if variants[name].clip == 1 else "unclipped"
        rows.append(mean_row(f"end, {kind}", arm, run.summary["learning_rate"] / base_rate, Effect(end(run))))
    rows.append(mean_row(f"limit{mark}", arm, "", Effect(rate_limit(clipped, base_rate))))
    rows.append(mean_row(f"sensitivity{mark}", arm, "", Effect(sensitivity(clipped))))
    if own:
        return rows
    beyond = unlimited(clipped)
    rows.append({"panel": "no limit", "what": arm, "value": beyond.sum(), "count": len(beyond)})
    return [*rows, blow_up_row("blow-ups", arm, every, scores.scale.model.vocab)]


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
    kinds = {
        "clipped": ("-", "full", "clipped"),
        "unclipped": ("none", "none", "not clipped"),
        "own": (":", "left", "own table rate"),
    }
    arms = list(dict.fromkeys(pick(data, panel="end, clipped")["what"]))
    for arm in arms:
        axes.plot([], [], ARM_MARKER[arm], color=ARM_COLOUR[arm], label=ARM_LABEL[arm])
    for kind, (line, fill, label) in kinds.items():
        every = pick(data, panel=f"end, {kind}")
        for arm, rows in every.groupby("what", sort=False):
            aside = 1.09 ** (arms.index(arm) - len(arms) / 2)  # so that error bars do not overlap
            rows = rows.assign(x=aside * rows["x"].astype(float)).sort_values("x")
            looks = {"color": ARM_COLOUR[arm], "marker": ARM_MARKER[arm], "fillstyle": fill, "mfcalt": "white"}
            draw_means(axes, rows["x"], rows, **looks, ls=line)
        if len(every):
            axes.plot([], [], color=PLAIN, marker="o", fillstyle=fill, mfcalt="white", ls=line, label=label)
    entropy = pick(data, panel="token frequencies")["value"].iloc[0]
    axes.axhline(entropy, color="black", lw=0.8, ls=":")
    axes.plot([], [], color="black", lw=0.8, ls=":", label="token frequencies alone")
    axes.set_xscale("log", base=2)
    ticks = sorted(pick(data, panel="end, clipped")["x"].astype(float).unique())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ends = data[data["panel"].isin([f"end, {kind}" for kind in kinds])][["value", "ci_low", "ci_high"]]
    low, high = np.nanmin(ends), min(np.nanmax(ends), 12)  # a run that blew up may leave the panel
    axes.set_ylim(low - 0.12 * (high - low), high + 0.45 * (high - low))  # room for words below and above
    axes.set(xlabel="learning rate / the scale's", ylabel=f"{LESS}, last tenth's\ntraining loss (nats/token)")
    axes.legend(loc="upper left", ncols=2)


def draw_blow_ups(axes: Axes, data: pd.DataFrame) -> None:
    """Write how many of the short runs ended above their first loss, and how many of the longer ones."""
    parts = []
    for panel, words in (("blow-ups", "short runs"), ("long blow-ups", "of half the tokens")):
        rows = pick(data, panel=panel)
        if len(rows):
            parts.append(f"{rows['value'].sum():.0f} of {rows['count'].sum():.0f} {words}")
    words = f"blew up: {', '.join(parts)}"
    axes.text(0.98, 0.02, words, transform=axes.transAxes, fontsize=SMALLEST, ha="right")


def draw_limits(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the learning rate from which on an arm learns no more than token frequencies.

    Hollow marks have the family's own table learning rate.
    """
    rows = pick(data, panel="limit")
    order = list(rows["what"])
    draw_both(axes, data, "limit", "doublings of the scale's learning rate")
    for place, arm in enumerate(order):
        count, seeds = pick(data, panel="no limit", what=arm)[["value", "count"]].iloc[0]
        if count:
            x = pick(rows, what=arm)["value"].iloc[0]
            axes.text(x, place - 0.2, f"{count:.0f} of {seeds:.0f} never", fontsize=SMALLEST, ha="center")
    axes.set_xlim(0, 1.15 * rows["ci_high"].max(skipna=True) if seeds > 1 else None)


def draw_both(axes: Axes, data: pd.DataFrame, panel: str, label: str) -> None:
    """Draw a line per arm, hollow with the family's own table learning rate."""
    order = list(pick(data, panel=panel)["what"])
    draw_forest(axes, pick(data, panel=panel), order, label)
    draw_forest(axes, pick(data, panel=f"{panel}, own"), order, label, hollow=True, shift=0.25)
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
    draw_blow_ups(grid["c"], data)
    draw_limits(grid["d"], data)
    draw_both(grid["e"], data, "sensitivity", f"{LESS}, mean over rates\nless best (nats/token)")
    return figure
