"""Leads by how far back the target stood last and by position; the paper's differences on reasoning tasks next to ours
where there are any.
"""

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.buckets import bucket_name
from stemrepro.measures.reasoning import LONGEST, by_distance, loss, score
from stemrepro.measures.scores import Scores
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_COLOUR, ARM_MARKER, BETTER, SMALLEST, draw_means, one_legend, sheet
from stemrepro.verdicts.effect import Effect, Untested

PAIRS = {
    ("dense", "stem-full"): ("dense - STEM full", "stem-full"),
    ("dense", "stem-third"): ("dense - STEM 1/3", "stem-third"),
    ("token-only", "stem-full"): ("token-only - STEM full (contextual part)", "token-only"),
}
TASKS = {
    "bbh": ("table-5", "bbh", "bbh", 0, LONGEST),
    "musr": ("table-5", "musr", "leaderboard_musr", 0, LONGEST),
    "multihop-0-4k": ("table-5", "multihop_0_4k", "multihop", 0, 4000),
    "multihop-4-8k": ("table-5", "multihop_4_8k", "multihop", 4000, 8000),
    "multihop-8k": ("table-5", "multihop_8k", "multihop", 8000, LONGEST),
    "code-0-4k": ("table-5", "code_0_4k", "code", 0, 4000),
    "code-4-8k": ("table-5", "code_4_8k", "code", 4000, 8000),
    "code-8k": ("table-5", "code_8k", "code", 8000, LONGEST),
    "longbench-0-2k": ("table-6", "0_2k", "longbench", 0, 2000),
    "longbench-2-4k": ("table-6", "2_4k", "longbench", 2000, 4000),
    "longbench-4-6k": ("table-6", "4_6k", "longbench", 4000, 6000),
    "longbench-6-8k": ("table-6", "6_8k", "longbench", 6000, 8000),
    "longbench-8-10k": ("table-6", "8_10k", "longbench", 8000, 10000),
    "longbench-10-12k": ("table-6", "10_12k", "longbench", 10000, 12000),
    "longbench-12k": ("table-6", "12k", "longbench", 12000, LONGEST),
}
"""The paper's table and column of each task, and ours with its range of words."""
FEWEST = 20
"""Targets that a bucket needs to be drawn."""
WORDS = {"distance": "tokens since the target stood last", "position": "position in the sequence"}


def collect(scores: Scores) -> pd.DataFrame:
    """Return differences of losses and shares of targets by distance and position; points on tasks."""
    rows = []
    for by in WORDS:
        lines = by_distance(scores, "dense", by)
        tokens = pick(lines, seed=lines["seed"].min()).groupby("at")["tokens"].sum()
        for at, after in pairwise([*tokens.index, 2**30]):
            if tokens[at] < FEWEST:
                continue
            rows.append(mean_row(f"share, {by}", "targets", at, Effect(np.array([100 * tokens[at] / tokens.sum()]))))
            rows += [
                mean_row(f"lead, {by}", label, at, loss(scores, *pair, by, at, after))
                for pair, (label, _) in PAIRS.items()
            ]
    numbers = scores.catalog.paper
    for name, (table, column, task, least, below) in TASKS.items():
        paper, dense = (numbers.value(f"{table}/{arm}/{column}") for arm in ("stem-third", "dense"))
        words = "" if (least, below) == (0, LONGEST) else f":{least}-{'' if below == LONGEST else below}"
        about = {"what": name, "x": f"score:{task}{words}"}
        rows.append({"panel": "tasks, the paper's", **about, "value": round(paper - dense, 6), "count": 1})
        with suppress(Untested):
            rows.append(
                mean_row("tasks, ours", *about.values(), score(scores, "stem-third", "dense", task, least, below))
            )
    return pd.DataFrame(rows)


def draw_lead(axes: Axes, data: pd.DataFrame, by: str) -> None:
    """Draw differences of losses by bucket, and below the axis the share of targets in each."""
    shares = pick(data, panel=f"share, {by}")
    edges = tuple(int(x) for x in shares["x"])
    for shift, (label, arm) in zip((-0.12, 0, 0.12), PAIRS.values(), strict=True):
        leads = pick(data, panel=f"lead, {by}", what=label)
        places = np.arange(len(leads)) + shift
        draw_means(axes, places, leads, color=ARM_COLOUR[arm], fmt=f"{ARM_MARKER[arm]}-", label=label)
    names = [bucket_name(edges, number) for number in range(len(edges))]
    if by == "distance":
        names[0] = "new"
    words = [f"{name}\n{share:.0f}%" for name, share in zip(names, shares["value"], strict=True)]
    axes.set_xticks(range(len(edges)), words, fontsize=SMALLEST)
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xlabel(f"{WORDS[by]}\n(below: share of the targets)")
    axes.set_ylabel(f"difference of losses\n(nats/token), {BETTER}")


def draw_tasks(axes: Axes, data: pd.DataFrame) -> None:
    """Draw STEM 1/3 less dense on the paper's tasks: its numbers and ours."""
    paper = pick(data, panel="tasks, the paper's")
    ours = pick(data, panel="tasks, ours").set_index("what")
    places = np.arange(len(paper))[::-1]
    axes.plot(paper["value"], places, "D", color="black", ms=4, mfc="none", label="the paper")
    for place, name in zip(places, paper["what"], strict=True):
        if name in ours.index:
            draw_means(axes, place, ours.loc[name], sideways=True, fmt="o", ms=4, color=ARM_COLOUR["stem-third"])
    axes.axvline(0, color="black", lw=0.6)
    axes.set_yticks(places, paper["what"], fontsize=SMALLEST)
    axes.set(xlabel=f"STEM 1/3 less dense\n(points), {BETTER}", xlim=(min(-1, paper["value"].min() - 1), None))
    axes.legend(loc="lower right")


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw losses, and next to them the paper's tasks where any was measured here."""
    titles = {"a": "Leads on prose by distance", "b": "Leads on prose by position", "c": "Tasks of reasoning"}
    if (data["panel"] == "tasks, ours").any():
        figure, grid = sheet("ac;bc", 5.6, titles, width_ratios=(3, 2))
        draw_tasks(grid["c"], data)
    else:
        figure, grid = sheet("a;b", 5.6, {letter: titles[letter] for letter in "ab"})
    for letter, by in zip("ab", WORDS, strict=True):
        draw_lead(grid[letter], data, by)
    one_legend(figure, [grid["a"]], columns=3)
    return figure
