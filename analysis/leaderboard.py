"""Which memory is ahead, on each track: leads with intervals and ranks, and against parameters and bytes of rows."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures.leaderboard import FLOPS, SIZE, TIME, costs, lead, places, size, tracks
from stemrepro.measures.scores import Scores
from stemrepro.report.forest import draw_forest, name_rows
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import ARM_LABEL, PLAIN, SMALLEST, draw_means, headline, look, note, sheet

TITLES = {FLOPS: "Equal FLOPs", SIZE: "Equal size", TIME: "Equal time"}
LEAD = "below dense's loss (%) →"


def collect(scores: Scores) -> pd.DataFrame:
    """Return the lead of each arm on each track, `x`, with what it costs, and of a method its ranks."""
    rows = []
    for variant, track in tracks(scores).items():
        standing = {place.arm: place for place in places(scores, variant)}
        for arm in scores.recipe.arms_at(variant):
            rows.append(mean_row("lead", arm, track, lead(scores, "dense", arm, variant)))
            numbers = costs(scores, arm, variant)
            if place := standing.get(arm):
                numbers |= {"rank": place.rank, "best rank": place.best, "worst rank": place.worst}
                numbers |= {"ahead of the next": place.ahead}
            rows += [
                {"panel": panel, "what": arm, "x": track, "value": value}
                for panel, value in numbers.items()
                if not np.isnan(value)
            ]
    return pd.DataFrame(rows)


def draw_ranks(axes: Axes, data: pd.DataFrame, track: str, order: list[str]) -> None:
    """Draw the leads of methods on a track, with the ranks there that they may have; what has none isn't drawn."""
    rows = pick(data, x=track)
    values = rows.set_index(["panel", "what"])["value"]
    ranked = [arm for arm in order if ("rank", arm) in values.index]
    draw_forest(axes, rows[(rows["panel"] == "lead") & rows["what"].isin(ranked)], order, LEAD)
    if len(ranked) < 2:  # dense alone, whose lead over itself is 0
        axes.set_xlim(-1, 1)
    name_rows(axes, order)
    axes.tick_params(labelleft=axes.get_subplotspec().is_first_col())
    for place, arm in enumerate(order):
        words = "shape"
        if arm in ranked:
            best, worst = (int(values[which, arm]) for which in ("best rank", "worst rank"))
            words = f"{best}" if best == worst else f"{best}-{worst}"
        note(axes, words, (1.0, place), (4, 0), xycoords=("axes fraction", "data"))
    note(axes, "rank", (1.0, 1.0), (4, 2), xycoords="axes fraction", va="baseline")


def draw_against(axes: Axes, data: pd.DataFrame, order: list[str], cost: str, label: str, ticks: list[float]) -> None:
    """Draw the leads of methods at equal FLOPs against a cost: over dense's, or as it is where dense has none."""
    values = pick(data, x=FLOPS).set_index(["panel", "what"])
    dense = values["value"][cost, "dense"]
    for arm in (arm for arm in order if (cost, arm) in values.index):
        row, at = values.loc[("lead", arm)], values["value"][cost, arm] / (dense or 1)
        draw_means(axes, at, row, **look(arm, joined=False), ms=5, label=ARM_LABEL[arm])
    axes.axhline(0, color="black", lw=0.6)
    if dense:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=ticks[1], linscale=0.5)
        axes.set_xlim(-ticks[1] / 4, ticks[-1])
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel=label, ylabel=LEAD)


def draw_widths(axes: Axes, data: pd.DataFrame, order: list[str], width: int) -> None:
    """Add the leads at equal FLOPs and another width, hollow."""
    for smaller in [track for track in data["x"].dropna().unique() if track.startswith(f"{FLOPS},")]:
        rows = pick(data, x=smaller, panel="lead")
        draw_forest(axes, rows[rows["what"] != "dense"], order, LEAD, hollow=True, shift=0.3)
        axes.plot([], [], "o", color=PLAIN, label=f"width {width}")
        axes.plot([], [], "o", color=PLAIN, mfc="white", label=smaller.removeprefix(f"{FLOPS}, "))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=SMALLEST)


def alone_in_front(data: pd.DataFrame, track: str) -> str | None:
    """Return the name of the method that alone is first on a track; None where none is."""
    worst = pick(data, x=track, panel="worst rank")
    first = list(worst.loc[worst["value"] == 1, "what"])
    return ARM_LABEL[first[0]] if first else None


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw the leads on all tracks with the ranks that they leave, those of controls, and what methods cost."""
    leads = pick(data, x=FLOPS, panel="lead").sort_values("value", ascending=False)
    is_ranked = leads["what"].isin(data.loc[data["panel"] == "rank", "what"])
    order, others = list(leads.loc[is_ranked, "what"]), list(leads.loc[~is_ranked, "what"])
    tracks = {track: title for track, title in TITLES.items() if (data["x"] == track).any()}
    titles = [*tracks.values(), *["Controls, equal FLOPs"] * bool(others), "By parameters", "By bytes of rows"]
    letters = "abcdef"[: len(titles)]
    layout = [letters[:3], letters[3:].ljust(3, ".")] if letters[3:] else [letters]
    figure, grid = sheet(";".join(layout), 9.4 if letters[3:] else 4.7, dict(zip(letters, titles, strict=True)))
    panels = iter(grid[letter] for letter in letters)
    for track in tracks:
        axes = next(panels)
        if axes is not grid["a"]:
            axes.sharey(grid["a"])
        draw_ranks(axes, data, track, order)
    draw_widths(grid["a"], data, order, scores.scale.model.width)
    if others:
        axes = next(panels)
        draw_forest(axes, leads, others, LEAD)
        name_rows(axes, others)
    costs = next(panels)
    draw_against(costs, data, order, "parameters", "all parameters / dense's", [1, 2, 4, 8])
    draw_against(next(panels), data, order, "bytes of rows", "bytes that a token reads", [0, 32, 256, 2048])
    dense = data.set_index(["panel", "x", "what"]).loc[("parameters", FLOPS, "dense"), "value"]
    first = [alone_in_front(data, track) for track in (FLOPS, SIZE)]
    ahead = f"First at equal FLOPs: {first[0]}. First at equal size: {first[1]}"
    at = f"(at {size(dense, scores.scale.training.tokens)})"
    headline(figure, f"{ahead}\n{at}", None not in first, f"{scores.recipe.title}\n{at}")
    figure.legend(*costs.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
