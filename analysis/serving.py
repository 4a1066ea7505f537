"""How long a token takes with tables, over dense's time, against the bytes that it reads, and with tables in a mapped
file. SmolLM2-135M-Instruct, quantised to 4 bits, on one machine.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import serving
from stemrepro.measures.scores import Scores
from stemrepro.measures.serving import KINDS, STUDY, TIMES
from stemrepro.measures.study import groups, table
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import (
    ARM_LABEL,
    FAINT,
    LESS,
    PLAIN,
    SMALL,
    draw_means,
    headline,
    look,
    note,
    sheet,
)
from stemrepro.verdicts.effect import Unmeasured

ARMS = {"third": "stem-third", "half": "stem-half", "full": "stem-full"}
FILES = {
    "warm": "in a file, which\nmemory holds",
    "warm-ahead": "the same, rows\nasked for ahead",
    "cold": "in a file,\non disk alone",
    "cold-ahead": "the same, rows\nasked for ahead",
}
"""Where STEM full's tables are."""
FIRST = "1 x 128"
"""Sequences and tokens of context that the panels are about."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return times over dense's and over those with tables in memory, bytes over dense's, and the machine."""
    rows = []
    for part, times in groups(scores, STUDY, TIMES, "phase", "kind", "batch", "context").items():
        phase, kind, batch, context = part
        x, present = f"{batch} x {context}", set(times["arm"])
        for arm in sorted(present - {"dense", "product", "bandwidth"}):
            bases = {"dense": f"{phase}, {kind}"} | ({"full": f"file, {phase}, {kind}"} if arm in FILES else {})
            for base, panel in bases.items():
                try:
                    rows.append(mean_row(panel, arm, x, serving.times_as_long(scores, arm, base, *part)))
                except Unmeasured:  # a file that lies in memory
                    continue
        if phase == "decode":
            for arm in ARMS:
                own, dense = (serving.rounds(scores, one, *part)["bytes"].iloc[0] for one in (arm, "dense"))
                rows.append({"panel": f"bytes, {kind}", "what": arm, "x": x, "value": 100 * own / dense})
    about = table(scores, STUDY, TIMES).iloc[0]
    rows.append({"panel": "machine", "what": about["machine"], "x": about["date"], "value": about["threads"]})
    return pd.DataFrame(rows)


def draw_times(axes: Axes, data: pd.DataFrame, panel: str, arms: list[str]) -> None:
    """Draw times of a token, of one sequence, in both types; hollow is bfloat16."""
    for place, name in enumerate(arms):
        looks = look(ARMS.get(name, "stem-full"), joined=False)
        for kind, shift in zip(KINDS, (-0.14, 0.14), strict=True):
            fill = looks["mfc"] if kind == KINDS[0] else "white"
            for _, row in pick(data, panel=f"{panel}, {kind}", what=name, x=FIRST).iterrows():
                draw_means(axes, place + shift, row, sideways=True, **looks | {"mfc": fill})
                words = f"{row['value']:.0f}% ({row['ci_low']:.0f} to {row['ci_high']:.0f})"
                note(axes, words, (1, place + shift), (4, 0), xycoords=axes.get_yaxis_transform(), color=looks["color"])
    axes.axvline(100, color=PLAIN, lw=0.8, ls=":")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_ylim(len(arms) - 0.5, -0.5)


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw times with tables in memory over dense's and with tables in a file over these, and name the machine."""
    figure, grid = sheet("ab", 3.4, {"a": "Tables in memory (hollow: bfloat16)", "b": "STEM full's tables in a file"})
    draw_times(grid["a"], data, "decode", list(ARMS))
    for place, arm in enumerate(ARMS):
        read = pick(data, panel=f"bytes, {KINDS[0]}", what=arm, x=FIRST)["value"].iloc[0]
        grid["a"].plot([read] * 2, [place - 0.3, place + 0.3], color="black", lw=1.2)
    grid["a"].set_yticks(range(len(ARMS)), [ARM_LABEL[arm] for arm in ARMS.values()])
    about = pick(data, panel="machine").iloc[0]
    machine = f"{about['what'].split(' [')[0]}, {int(about['value'])} threads, {about['x'][:10]}"
    grid["a"].set_xlabel(f"{LESS}, time of a token\nover dense's (%)\n{machine}")
    draw_times(grid["b"], data, "file, decode", list(FILES))
    grid["b"].set_yticks(range(len(FILES)), list(FILES.values()), fontsize=SMALL)
    grid["b"].set_xlabel(
        f"{LESS}, time of a token over that\nwith tables in memory (%)\none sequence after 128 tokens of context"
    )
    grid["a"].set_ylim(len(ARMS), -0.5)
    words, sideways = "bars: memory read for\na token, over dense's", grid["a"].get_yaxis_transform()
    note(grid["a"], words, (0.02, len(ARMS) - 0.35), (0, 0), xycoords=sideways)
    times = pick(data, panel=f"decode, {KINDS[0]}", x=FIRST).set_index("what")
    full, third = times.loc["full"], times.loc["third"]
    message = (
        f"On a CPU a real model decodes a token in {100 - full['value']:.0f}% less time with STEM full's\n"
        "tables; that STEM 1/3's make it faster isn't shown"
    )
    shown = full["ci_high"] < 100 and third["ci_low"] < 100 < third["ci_high"]
    headline(figure, message, bool(shown), scores.recipe.title)
    return figure
