"""Fig. 5a: training losses and gradient norms, spikes by a stated rule, and how high a learning rate each arm bears."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.claims import Contrast
from stemrepro.measures.comparison import OWN_RATES
from stemrepro.measures.stability import Stability, borne, coincidence, divergence, end, rate, spikes
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, error_bars, plt
from stemrepro.scores.losses import ArmLosses

SMOOTH = 20
"""Steps of the moving mean that is drawn."""


def collect(measure: Stability) -> pd.DataFrame:
    """Smoothed losses, spikes of losses and gradient norms, and where each rate ends."""
    rows, base_rate = [], measure.inputs.scale.learning_rate
    for arm, found in measure.arms.items():
        steps = found.losses.steps
        smooth = np.stack([np.convolve(own, np.ones(SMOOTH) / SMOOTH, "valid") for own in steps["loss"]])
        for step in range(0, smooth.shape[1], 10):
            rows.append(mean_row("loss", arm, step + SMOOTH, Contrast(smooth[:, step])))
        for number, own in enumerate(steps["loss"]):
            rows += [{"panel": "spike", "what": arm, "x": int(at), "value": own[at], "seed": number} for at in spikes(own)]  # fmt: skip
        rows += count_rows(arm, found.losses, "")
        own_rate = measure.at_own_rate(arm)
        if own_rate and own_rate is not found.losses:
            rows += count_rows(arm, own_rate, ", own rate")
        if arm != "dense":
            shares = coincidence(steps["loss"], measure.arms["dense"].losses.steps["loss"])
            rows += [
                {"panel": "spikes shared with dense", "what": arm, "x": x, "value": share}
                for x, share in zip(("same batches", "other batches"), shares, strict=True)
            ]
        for name, there in found.points.items():
            if name in OWN_RATES:
                continue
            point = measure.inputs.book.points[name]
            kind = "own" if point.own_rate else "clipped" if point.clip == 1 else "unclipped"
            times = there.summary["learning_rate"] / base_rate
            rows.append(mean_row(f"end, {kind}", arm, times, Contrast(end(there))))
        rows.append(mean_row("divergence", arm, "", Contrast(divergence(measure.raised(arm), base_rate))))
        bears = borne(measure.raised(arm))
        rows.append({"panel": "bears all rates", "what": arm, "value": bears.sum(), "count": len(bears)})
        if measure.raised(arm, own=True) != measure.raised(arm):
            failed = Contrast(divergence(measure.raised(arm, own=True), base_rate))
            rows.append(mean_row("divergence, own", arm, "", failed))
        rows.append({"panel": "token frequencies", "what": arm, "value": found.summary["training_entropy"]})
    return pd.DataFrame(rows)


def count_rows(arm: str, runs: ArmLosses, kind: str) -> list[dict]:
    """Spikes in a thousand steps of the losses and of the gradient norms."""
    series = {"loss": "loss", "gradient norm": "norm"}
    return [mean_row(f"spikes{kind}", arm, what, Contrast(rate(runs.steps[key]))) for what, key in series.items()]


def draw_losses(axes: Axes, data: pd.DataFrame) -> None:
    """Smoothed training loss, mean over seeds; dots are steps that count as a spike in some seed."""
    for arm, rows in data[data["panel"] == "loss"].groupby("what", sort=False):
        axes.plot(rows["x"], rows["value"], color=ARM_COLOUR[arm], marker=ARM_MARKER[arm], markevery=(6, 12), ms=4, lw=1.2, label=ARM_LABEL[arm])  # fmt: skip
        own = data[(data["panel"] == "spike") & (data["what"] == arm)]
        axes.plot(own["x"], own["value"], ARM_MARKER[arm], color=ARM_COLOUR[arm], ms=3, alpha=0.6)
    lines = data[data["panel"] == "loss"]["value"]
    axes.set_ylim(lines.min() - 0.3, lines.quantile(0.97) + 0.5)
    axes.set(xlabel="training step", ylabel="training loss (nats/token)")
    axes.legend(fontsize=7)


def draw_spikes(axes: Axes, data: pd.DataFrame) -> None:
    """Spikes in a thousand steps, of the loss and of the gradient norm."""
    own = data[data["panel"] == "spikes"]
    arms = list(dict.fromkeys(own["what"]))
    for shift, what, hatch in ((-0.2, "loss", ""), (0.2, "gradient norm", "//")):
        rows = own[own["x"] == what].set_index("what").loc[arms]
        at = np.arange(len(arms)) + shift
        axes.barh(
            at, rows["value"], height=0.38, color=[ARM_COLOUR[arm] for arm in arms], hatch=hatch, edgecolor="white"
        )
        axes.errorbar(rows["value"], at, xerr=error_bars(rows), color="#777777", capsize=2.5, lw=0.9, ls="none")
        axes.barh(0, 0, color="#888888", hatch=hatch, edgecolor="white", label=what)
    name_rows(axes, arms)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("spikes in 1,000 steps")
    axes.legend(fontsize=7, loc="lower right")


def draw_ends(axes: Axes, data: pd.DataFrame) -> None:
    """Final training loss of short runs against the learning rate."""
    kinds = {"clipped": ("-", True, "clipped"), "unclipped": ("none", False, "not clipped"), "own": ("--", True, "own table rate")}  # fmt: skip
    arms = list(dict.fromkeys(data["what"]))
    for kind, (line, filled, label) in kinds.items():
        every = data[data["panel"] == f"end, {kind}"]
        for arm, rows in every.groupby("what", sort=False):
            aside = 1.03 ** (arms.index(arm) - len(arms) / 2)  # so that error bars stand side by side
            rows = rows.assign(x=aside * rows["x"].astype(float)).sort_values("x")
            axes.errorbar(
                rows["x"], rows["value"], yerr=error_bars(rows), color=ARM_COLOUR[arm], marker=ARM_MARKER[arm],
                mfc=ARM_COLOUR[arm] if filled else "white", ms=4.5, lw=1, ls=line, capsize=2,
            )  # fmt: skip
        if len(every):
            axes.plot([], [], color="#555555", marker="o", ms=4.5, mfc="#555555" if filled else "white", ls=line, lw=1, label=label)  # fmt: skip
    known = data[data["panel"] == "token frequencies"]["value"].iloc[0]
    axes.axhline(known, color="black", lw=0.8, ls=":")
    axes.text(0.98, known + 0.13, "token frequencies (dotted)", transform=axes.get_yaxis_transform(), fontsize=7, ha="right")  # fmt: skip
    axes.set_xscale("log", base=2)
    ticks = sorted(data[data["panel"] == "end, clipped"]["x"].astype(float).unique())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ends = data[data["panel"] == "end, clipped"]["value"]
    axes.set_ylim(ends.min() - 0.3, min(ends.max() + 0.9, 12))
    axes.set(xlabel="learning rate / the scale's", ylabel="last tenth's training loss")
    axes.legend(fontsize=6.5, loc="upper left")


def draw_divergence(axes: Axes, data: pd.DataFrame) -> None:
    """Rate at which each arm fails to beat token frequencies; hollow marks with the family's own table rate."""
    order = list(data[data["panel"] == "divergence"]["what"])
    draw_forest(axes, data[data["panel"] == "divergence"], order, "doublings of the scale's rate at divergence")
    draw_forest(axes, data[data["panel"] == "divergence, own"], order, axes.get_xlabel(), hollow=True, shift=0.25)
    for place, arm in enumerate(order):
        count, seeds = data[(data["panel"] == "bears all rates") & (data["what"] == arm)][["value", "count"]].iloc[0]
        if count:
            x = data[(data["panel"] == "divergence") & (data["what"] == arm)]["value"].iloc[0]
            axes.text(x, place - 0.2, f"{count:.0f} of {seeds:.0f} never", fontsize=6.5, ha="center")
    axes.set_xlim(0, 1.15 * data[data["panel"] == "divergence"]["ci_high"].max(skipna=True) if seeds > 1 else None)
    name_rows(axes, order)


def draw(data: pd.DataFrame, measure: Stability) -> Figure:
    """Losses, spikes, ends at raised rates, and rates at divergence."""
    figure, ((losses, counts), (ends, failed)) = plt.subplots(2, 2, figsize=(7.4, 5.8), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.02, 1, 0.98))
    draw_losses(losses, data)
    draw_spikes(counts, data)
    draw_ends(ends, data)
    draw_divergence(failed, data)
    titles = ("a  Training losses", "b  Spikes", "c  Short runs at higher rates", "d  Rate at divergence")
    for axes, title in zip((losses, counts, ends, failed), titles, strict=True):
        axes.set_title(title)
    return figure
