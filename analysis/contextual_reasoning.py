"""Leads by how far back the target stood last and by position; the paper's differences on reasoning tasks next to ours
where there are any.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.config.buckets import bucket_name, position_edges
from stemrepro.measures.reasoning import Reasoning
from stemrepro.report.results import mean_row
from stemrepro.report.style import ARM_COLOUR, ARM_MARKER, BETTER, SMALLEST, error_bars, one_legend, sheet
from stemrepro.verdicts.contrast import Contrast

PAIRS = {
    ("dense", "stem-full"): ("dense - STEM full", "stem-full"),
    ("dense", "stem-third"): ("dense - STEM 1/3", "stem-third"),
    ("token-only", "stem-full"): ("token-only - STEM full (contextual part)", "token-only"),
}
TASKS = {
    "bbh": ("table-5", "bbh", "score:bbh"),
    "musr": ("table-5", "musr", "score:leaderboard_musr"),
    "multihop-0-4k": ("table-5", "multihop_0_4k", "score:multihop:0-4000"),
    "multihop-4-8k": ("table-5", "multihop_4_8k", "score:multihop:4000-8000"),
    "multihop-8k": ("table-5", "multihop_8k", "score:multihop:8000-"),
    "code-0-4k": ("table-5", "code_0_4k", "score:code:0-4000"),
    "code-4-8k": ("table-5", "code_4_8k", "score:code:4000-8000"),
    "code-8k": ("table-5", "code_8k", "score:code:8000-"),
    "longbench-0-2k": ("table-6", "0_2k", "score:longbench:0-2000"),
    "longbench-2-4k": ("table-6", "2_4k", "score:longbench:2000-4000"),
    "longbench-4-6k": ("table-6", "4_6k", "score:longbench:4000-6000"),
    "longbench-6-8k": ("table-6", "6_8k", "score:longbench:6000-8000"),
    "longbench-8-10k": ("table-6", "8_10k", "score:longbench:8000-10000"),
    "longbench-10-12k": ("table-6", "10_12k", "score:longbench:10000-12000"),
    "longbench-12k": ("table-6", "12k", "score:longbench:12000-"),
}
"""The paper's table and column of each task, and our metric of the same."""
FEWEST = 20
"""Targets that a bucket needs to be drawn."""
WORDS = {"distance": "tokens since the target stood last", "position": "position in the sequence"}


def collect(measure: Reasoning) -> pd.DataFrame:
    """Return differences of losses and shares of targets by distance and position; points on tasks."""
    rows, dense = [], measure.arms["dense"].arrays
    for by in WORDS:
        tokens = dense[f"{by}_tokens"].sum(axis=0)
        edges = position_edges(2**30)[: len(tokens)]
        for number, at in enumerate(edges):
            if tokens[number] < FEWEST:
                continue
            where = (at, edges[number + 1] if number + 1 < len(edges) else 2**30)
            rows.append(
                mean_row(f"share, {by}", "targets", at, Contrast(np.array([100 * tokens[number] / tokens.sum()])))
            )
            rows += [
                mean_row(f"lead, {by}", label, at, measure.difference(*pair, by, where))
                for pair, (label, _) in PAIRS.items()
            ]
    numbers = measure.inputs.catalog.paper
    for name, (table, column, metric) in TASKS.items():
        paper, dense = (numbers.value(f"{table}/{arm}/{column}") for arm in ("stem-third", "dense"))
        rows.append(
            {"panel": "tasks, the paper's", "what": name, "x": metric, "value": round(paper - dense, 6), "count": 1}
        )
        difference = measure.contrast("stem-third", "dense", metric)
        if np.isfinite(difference.differences).all():
            rows.append(mean_row("tasks, ours", name, metric, difference))
    return pd.DataFrame(rows)


def draw_lead(axes: Axes, data: pd.DataFrame, by: str) -> None:
    """Draw differences of losses by bucket, and below the axis the share of targets in each."""
    shares = data[data["panel"] == f"share, {by}"]
    edges = tuple(int(x) for x in shares["x"])
    for shift, (label, arm) in zip((-0.12, 0, 0.12), PAIRS.values(), strict=True):
        leads = data[(data["panel"] == f"lead, {by}") & (data["what"] == label)]
        axes.errorbar(
            np.arange(len(leads)) + shift, leads["value"], yerr=error_bars(leads), color=ARM_COLOUR[arm],
            fmt=f"{ARM_MARKER[arm]}-", label=label,
        )  # fmt: skip
    names = [bucket_name(edges, number) for number in range(len(edges))]
    if by == "distance":
        names[0] = "new"
    axes.set_xticks(
        range(len(edges)),
        [f"{name}\n{share:.0f}%" for name, share in zip(names, shares["value"], strict=True)],
        fontsize=SMALLEST,
    )
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xlabel(f"{WORDS[by]}\n(below: share of the targets)")
    axes.set_ylabel(f"difference of losses\n(nats/token), {BETTER}")


def draw_tasks(axes: Axes, data: pd.DataFrame, measure: Reasoning) -> None:
    """Draw STEM 1/3 less dense on the paper's tasks: its numbers and ours."""
    paper = data[data["panel"] == "tasks, the paper's"]
    ours = data[data["panel"] == "tasks, ours"].set_index("what")
    places = np.arange(len(paper))[::-1]
    axes.plot(paper["value"], places, "D", color="black", ms=4, mfc="none", label="the paper")
    for place, name in zip(places, paper["what"], strict=True):
        if name in ours.index:
            axes.errorbar(
                ours.loc[name, "value"],
                place,
                xerr=error_bars(ours.loc[name])[:, None],
                fmt="o",
                ms=4,
                color=ARM_COLOUR["stem-third"],
            )
    axes.axvline(0, color="black", lw=0.6)
    axes.set_yticks(places, paper["what"], fontsize=SMALLEST)
    axes.set(xlabel=f"STEM 1/3 less dense\n(points), {BETTER}", xlim=(min(-1, paper["value"].min() - 1), None))
    axes.legend(loc="lower right")


def draw(data: pd.DataFrame, measure: Reasoning) -> Figure:
    """Draw losses, and next to them the paper's tasks where any was measured here."""
    titles = {"a": "Leads on prose by distance", "b": "Leads on prose by position", "c": "Tasks of reasoning"}
    if (data["panel"] == "tasks, ours").any():
        figure, grid = sheet("ac;bc", 5.6, titles, width_ratios=(3, 2))
        draw_tasks(grid["c"], data, measure)
    else:
        figure, grid = sheet("a;b", 5.6, {letter: titles[letter] for letter in "ab"})
    for letter, by in zip("ab", WORDS, strict=True):
        draw_lead(grid[letter], data, by)
    one_legend(figure, [grid["a"]], columns=3)
    return figure
