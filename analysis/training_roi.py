"""Table 3's ROI: the paper's taken apart into accuracy and FLOPs, ours, and what losses say of the same."""

import textwrap
from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from stemrepro.config.paper import Paper
from stemrepro.measures.roi import accuracy_factor, equal_flops, flop_factor, flops, roi_above_chance
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, BETTER, GAIN, PLAIN, SMALL, draw_means, error_bars, sheet
from stemrepro.verdicts.effect import Effect

MULTIPLE_CHOICE_CHANCE = {
    "arc_easy": 25,
    "arc_challenge": 25,
    "boolq": 50,
    "piqa": 50,
    "social_iqa": 100 / 3,
    "hellaswag": 25,
    "openbookqa": 25,
    "winogrande": 50,
}
"""Points that guessing gets on the paper's eight benchmarks."""
PAPER = "table-3-350m"
"""The paper's accuracies and FLOPs."""


def paper_factors(paper: Paper, arm: str) -> dict[str, float]:
    """Return logs of the paper's factors of an arm over dense: accuracy, FLOPs, and accuracy above chance."""
    accuracy, flops = (
        [paper.value(f"{PAPER}/{name}/{what}") for name in (arm, "dense")] for what in ("average", "gflops")
    )
    guess = float(np.mean(list(MULTIPLE_CHOICE_CHANCE.values())))
    return {
        "accuracy": float(np.log(accuracy[0] / accuracy[1])),
        "FLOPs": float(np.log(flops[1] / flops[0])),
        "accuracy above chance": float(np.log((accuracy[0] - guess) / (accuracy[1] - guess))),
    }


def collect(scores: Scores) -> pd.DataFrame:
    """Return factors of ROI, the paper's and ours, gains in loss at equal FLOPs, and gains in FLOPs at equal loss."""
    rows = []
    for arm in scores.recipe.arms:
        if arm == "dense":
            continue
        paper = scores.catalog.paper
        if arm in paper.blocks[PAPER].rows:
            rows += [{"panel": "paper", "what": arm, "x": x, "value": v} for x, v in paper_factors(paper, arm).items()]
        ours = {
            "accuracy": accuracy_factor(scores, arm, "dense"),
            "FLOPs": Effect(np.array([flop_factor(scores, arm, "dense")])),
            "accuracy above chance": roi_above_chance(scores, arm, "dense"),
        }
        rows += [mean_row("ours", arm, x, contrast) for x, contrast in ours.items()]
        rows.append(mean_row("FLOPs to dense's loss", arm, "", flops(scores, "dense", arm)))
        rows.append(mean_row("loss at equal FLOPs", arm, "", equal_flops(scores, "dense", arm)))
    return pd.DataFrame(rows)


def name_bars(axes: Axes, arms: Iterable[str]) -> None:
    """Name the arms below their bars."""
    names = [textwrap.fill(ARM_LABEL[arm], 8, break_long_words=False) for arm in arms]
    axes.set_xticks(range(len(names)), names, fontsize=SMALL)


def draw_factors(axes: Axes, data: pd.DataFrame, panel: str) -> None:
    """Draw the log ROI of each arm as a pile of its FLOP factor and its accuracy factor."""
    factors = pick(data, panel=panel).set_index(["what", "x"])
    arms = list(dict.fromkeys(factors.index.get_level_values(0)))
    for place, arm in enumerate(arms):
        flops, accuracy, above = (
            factors.loc[(arm, what), "value"] for what in ("FLOPs", "accuracy", "accuracy above chance")
        )
        if not np.isfinite(accuracy):
            continue  # no item was answered rightly
        if np.isfinite(above):
            label = "chance taken off" if place == 0 else None
            axes.plot(place, flops + above, "d", mfc="white", mec="black", ms=6, ls="none", label=label, zorder=5)
        axes.bar(place, flops, color=ARM_COLOUR[arm], width=0.6, hatch="//", edgecolor="white")
        bottom = flops if accuracy * flops >= 0 else 0
        axes.bar(place, accuracy, bottom=bottom, color=ARM_COLOUR[arm], width=0.6, edgecolor="white")
        if panel == "ours":
            row = factors.loc[(arm, "accuracy")]
            axes.errorbar(place, flops + accuracy, yerr=error_bars(row)[:, None], color="black", capsize=3)
    axes.bar(0, 0, color=PLAIN, hatch="//", edgecolor="white", label="fewer FLOPs")
    axes.bar(0, 0, color=PLAIN, label="higher accuracy")
    axes.axhline(0, color="black", lw=0.6)
    name_bars(axes, arms)
    axes.set_ylabel("ROI over dense (log axis)")
    axes.yaxis.set_major_locator(FixedLocator(np.log(np.arange(0.5, 3, 0.1))))  # piles add up in logarithms alone
    axes.yaxis.set_major_formatter(lambda value, _: f"{np.exp(value):.1f}")
    axes.margins(y=0.3)
    axes.legend(loc="upper left", ncols=3, columnspacing=1, handletextpad=0.4)


def draw_gains(axes: Axes, data: pd.DataFrame, panel: str, label: str) -> None:
    """Draw a gain of each arm with its interval."""
    rows = pick(data, panel=panel).reset_index(drop=True)
    axes.bar(range(len(rows)), rows["value"], color=[ARM_COLOUR[arm] for arm in rows["what"]], width=0.6)
    draw_means(axes, range(len(rows)), rows, color="black", capsize=3, ls="none")
    axes.axhline(0, color="black", lw=0.6)
    name_bars(axes, rows["what"])
    axes.set_ylabel(label)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the paper's factors and ours, and what losses say."""
    titles = {
        "a": "The paper's ROI, 350M",
        "b": "Ours, by the same definition",
        "c": "FLOPs to dense's final loss",
        "d": "Prose loss at equal FLOPs",
    }
    figure, grid = sheet("ab;cd", 5.2, titles)
    paper, ours, flops, equal = grid.values()
    draw_factors(paper, data, "paper")
    draw_factors(ours, data, "ours")
    saved = data.copy()  # in percent: bars on a log axis would have lengths that mislead
    saved[["value", "ci_low", "ci_high"]] = -100 * np.expm1(-data[["value", "ci_low", "ci_high"]].astype(float))
    draw_gains(flops, saved, "FLOPs to dense's loss", f"FLOPs saved (%), {BETTER}")
    draw_gains(equal, data, "loss at equal FLOPs", GAIN)
    return figure
