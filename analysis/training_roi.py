"""Table 3's ROI, the paper's and ours, each as a factor by FLOPs and one by accuracy, and FLOPs to dense's loss."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.paper import Paper
from stemrepro.measures.roi import accuracy_factor, flop_factor, flops
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, BETTER, SMALL, draw_means, headline, note, sheet
from stemrepro.verdicts.effect import Effect

PAPER = "table-3-350m"
"""The paper's accuracies and FLOPs."""
STEM = ("stem-full", "stem-half", "stem-third")
ORDER = (*STEM, "hash-moe", "stem-frozen")


def paper_factors(paper: Paper, arm: str) -> dict[str, float]:
    """Return logs of the paper's factors of an arm over dense: accuracy and FLOPs."""
    accuracy, flops = (
        [paper.value(f"{PAPER}/{name}/{what}") for name in (arm, "dense")] for what in ("average", "gflops")
    )
    return {"accuracy": float(np.log(accuracy[0] / accuracy[1])), "FLOPs": float(np.log(flops[1] / flops[0]))}


def collect(scores: Scores) -> pd.DataFrame:
    """Return logs of ROI and its factors, the paper's and ours, and of the FLOPs saved on the way to dense's loss."""
    rows, paper = [], scores.catalog.paper
    for arm in ORDER:
        if arm in paper.blocks[PAPER].rows:
            rows += [{"panel": "paper", "what": arm, "x": x, "value": v} for x, v in paper_factors(paper, arm).items()]
        saved = Effect(np.array([flop_factor(scores, arm, "dense")]))
        rows.append(mean_row("ours", arm, "accuracy", accuracy_factor(scores, arm, "dense")))
        rows.append(mean_row("ours", arm, "FLOPs", saved))
        rows.append(mean_row("FLOPs to dense's loss", arm, "", flops(scores, "dense", arm)))
    return pd.DataFrame(rows)


def ratios(data: pd.DataFrame, panel: str) -> pd.DataFrame:
    """Return each arm's ROI over dense with its interval, and the factor of it that is fewer FLOPs."""
    logs = pick(data, panel=panel).set_index(["x", "what"])[["value", "ci_low", "ci_high"]].astype(float)
    flops = logs.loc["FLOPs"]["value"]
    roi = np.exp(logs.loc["accuracy"].add(flops, axis=0)).assign(flops=np.exp(flops))
    return roi[np.isfinite(roi["value"])]  # there is none where no item was answered rightly


def draw_roi(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw ROI over dense, hatched as far as it is fewer FLOPs."""
    for arm, row in rows.iterrows():
        place, colour, flops = ORDER.index(arm), ARM_COLOUR[arm], row["flops"]
        axes.barh(place, flops - 1, 0.5, left=1, color=colour, edgecolor="white", hatch="///")
        axes.barh(place, row["value"] - flops, 0.5, left=flops, color=colour, edgecolor="white")
        if np.isfinite(row["ci_low"]):
            draw_means(axes, place, row, sideways=True, color="black", lw=0.9, ls="none")
        note(axes, f"{row['value']:.2f}", (np.nanmax(row[["value", "ci_high"]]), place), (5, 0), fontsize=SMALL)
    axes.set_xlabel(f"ROI / dense's, {BETTER}")


def draw_saved(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the training FLOPs that an arm saves on its way to dense's final loss."""
    for place, arm in enumerate(ORDER):
        row = rows.loc[arm]
        axes.barh(place, row["value"], height=0.5, color=ARM_COLOUR[arm])
        draw_means(axes, place, row, sideways=True, color="black", lw=0.9, ls="none")
        note(axes, f"{row['value']:.0f}%", (np.nanmax(row[["value", "ci_high"]]), place), (5, 0), fontsize=SMALL)
    axes.axvline(0, color="black", lw=0.6)
    axes.margins(x=0.2)
    axes.set_xlabel(f"FLOPs saved (%), {BETTER}")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the paper's ROI and ours with their factors, and FLOPs saved."""
    titles = {"a": "The paper's ROI, 350M", "b": "Ours, by the next word", "c": "FLOPs to dense's loss"}
    figure, grid = sheet("abc", 3.1, titles, sharey=True)
    paper, ours = ratios(data, "paper"), ratios(data, "ours")
    draw_roi(grid["a"], paper)
    draw_roi(grid["b"], ours)
    every = pd.concat([paper, ours])
    for axes in (grid["a"], grid["b"]):
        axes.axvline(1, color="black", lw=0.6)
        axes.set_xlim(min(0.95, np.nanmin(every) - 0.02), 1.12 * np.nanmax(every))
    note(grid["a"], "fewer FLOPs", (1, -0.28), (2, 5))
    note(grid["a"], "higher accuracy", (paper.loc["stem-full", "flops"], -0.28), (2, 5))
    logs = pick(data, panel="FLOPs to dense's loss").set_index("what")[["value", "ci_low", "ci_high"]].astype(float)
    saved = -100 * np.expm1(-logs)
    draw_saved(grid["c"], saved)
    for axes in grid.values():
        name_rows(axes, list(ORDER))
    grid["a"].set_ylim(len(ORDER) - 0.5, -0.7)
    least, *_, most = sorted(saved.loc[list(STEM), "value"])
    message = (
        "Training ROI (accuracy per FLOP): STEM is above dense here as in the paper.\n"
        f"It reaches dense's loss with {least:.0f} to {most:.0f}% fewer FLOPs in the mean"
    )
    lows = ours["ci_low"] - 1, saved["ci_low"], paper["value"] - 1
    headline(figure, message, all((low.reindex(STEM) > 0).all() for low in lows), scores.recipe.title)
    return figure
