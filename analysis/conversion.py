"""What a published model's loss rises by where rows take the place of its up-projections: at once, by placement and
with controls, and after a short training. SmolLM2-135M-Instruct, quantised to 4 bits.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import conversion
from stemrepro.measures.conversion import STUDY
from stemrepro.measures.scores import Scores
from stemrepro.measures.study import groups
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_COLOUR,
    FAINT,
    LESS,
    PLAIN,
    SMALL,
    draw_means,
    headline,
    look,
    name_ends,
    note,
    sheet,
)

SETS = {
    "early": ("first third\n(after layer 0)", None),
    "third": ("STEM 1/3", "stem-third"),
    "half": ("STEM 1/2", "stem-half"),
    "late": ("last third", None),
    "full": ("STEM full", "stem-full"),
}
"""Name of a set of layers, and the arm that replaces it."""
KINDS = {
    "rows": "rows by token",
    "no-ffn": "no FFN at all",
    "one-row": "one row\nfor all tokens",
    "dealt-anew": "rows of\nother tokens",
    "no-up": "no up-projection",
}
ARMS = {
    "full": ("STEM full", "stem-full", {}),
    "half": ("STEM 1/2", "stem-half", {}),
    "third-tables": ("STEM 1/3, tables alone", "stem-third", {"mfc": "white", "ls": ":"}),
    "third-interpolated": (
        "STEM 1/3, up-\nprojection fades",
        "stem-third",
        {"fillstyle": "left", "mfcalt": "white", "ls": "--"},
    ),
    "third": ("STEM 1/3", "stem-third", {}),
}
"""Name of what is trained, the arm whose look it has, and what is its own."""
TOKENS_OF_STEP = 1024


def collect(scores: Scores) -> pd.DataFrame:
    """Return what rows cost by placement, kind and prior, and what is left of it by tokens of training."""
    rows, steps = [], conversion.steps(scores)
    for placement, kind in groups(scores, STUDY, "at-once", "placement", "kind"):
        if placement != "none":
            rows.append(mean_row("at once", kind, placement, conversion.cost(scores, placement, kind)))
    for placement, prior, few in groups(scores, STUDY, "priors", "placement", "prior", "few"):
        best = conversion.of_prior(scores, placement, prior, few)
        rows.append(mean_row(f"prior, {placement}", prior, few, best))
    for arm in ARMS:
        for step in steps:
            rows.append(mean_row("training", arm, step * TOKENS_OF_STEP, conversion.gap(scores, arm, step)))
        rows.append(mean_row("given back", arm, steps[-1], conversion.share_given_back(scores, arm)))
    for step in steps:
        rows.append(mean_row("dense", "gain of training", step * TOKENS_OF_STEP, conversion.gain(scores, step)))
    return pd.DataFrame(rows)


def draw_costs(axes: Axes, data: pd.DataFrame, lines: list[tuple[str, str, str, str | None]]) -> None:
    """Draw what stands in for up-projections costs at once: lines of kind, set of layers, name and arm."""
    for place, (kind, layers, _, arm) in enumerate(lines):
        row = pick(data, panel="at once", what=kind, x=layers).iloc[0]
        looks = look(arm, joined=False) if arm else {"color": PLAIN, "marker": "o", "ls": "none"}
        draw_means(axes, place, row, sideways=True, ms=5, **looks)
        note(axes, f"{row['value']:.1f}", (row["ci_high"], place), (4, 0), color=looks["color"])
    axes.set_xscale("log")
    axes.set_yticks(range(len(lines)), [name for _, _, name, _ in lines], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.invert_yaxis()
    axes.set_xlim(0.8, 30)
    axes.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    axes.minorticks_off()
    axes.set_xlabel(f"{LESS}, loss above\ndense's (nats/token)")


def draw_training(axes: Axes, data: pd.DataFrame) -> None:
    """Draw what is left of the cost against the tokens of the training."""
    ends = {}
    for arm, (name, like, own) in ARMS.items():
        rows = pick(data, panel="training", what=arm)
        draw_means(axes, rows["x"].astype(float) / 1e3, rows, ms=5, **look(like) | own)
        back = pick(data, panel="given back", what=arm)["value"].iloc[0]
        ends[f"{name}:\n{back:.0f}% given back"] = rows["value"].iloc[-1], ARM_COLOUR[like]
    axes.set_yscale("log")
    axes.set_ylim(0.5, 20)
    axes.set_yticks([0.5, 1, 3, 10], ["0.5", "1", "3", "10"])
    axes.minorticks_off()
    axes.set(
        xlabel="thousand tokens of training", ylabel=f"{LESS}, loss above dense's of\nas much training (nats/token)"
    )
    name_ends(axes, ends, 0.14)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw costs at once by layers and by what stands in for up-projections, and what a training leaves of them."""
    titles = {"a": "Rows at once, by layers", "b": "Controls, STEM 1/3's layers", "c": "After a short training"}
    figure, grid = sheet("ac;bc", 4.8, titles, width_ratios=(1, 1.15))
    draw_costs(grid["a"], data, [("rows", layers, *names) for layers, names in SETS.items()])
    stands = [(kind, "third", name, "stem-third" if kind == "rows" else None) for kind, name in KINDS.items()]
    draw_costs(grid["b"], data, stands)
    draw_training(grid["c"], data)
    back = pick(data, panel="given back", what="third")["value"].iloc[0]
    left = pick(data, panel="training", what="third").iloc[-1]
    message = (
        "A short training gives back about half of what rows of STEM 1/3 cost a real model;\n"
        f"dense, trained as long, stays {left['value']:.1f} nats ahead"
    )
    headline(figure, message, bool(40 < back < 60 and left["ci_low"] > 0), scores.recipe.title)
    return figure
