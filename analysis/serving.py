"""How long a token takes with tables, over dense's time, against the bytes that it reads; tables in a mapped file;
dense against Hugging Face's generate and a plain product. SmolLM2-135M-Instruct, quantised to 4 bits, on one machine.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stemrepro.measures import serving
from stemrepro.measures.scores import Scores
from stemrepro.measures.serving import KINDS, STUDY, TIMES
from stemrepro.measures.study import groups, table
from stemrepro.report.results import mean_row, pick
from stemrepro.report.style import HUES, PLAIN, SMALLEST, draw_means, sheet
from stemrepro.verdicts.effect import Unmeasured

PLACEMENTS = {"third": "1/3", "half": "1/2", "full": "full"}
FILES = {"warm": "warm", "warm-ahead": "warm,\nasked ahead", "cold": "cold", "cold-ahead": "cold,\nasked ahead"}
DENSE = {
    "dense": ("dense, here", "black", "o"),
    "hugging-face": ("Hugging Face", "blue", "^"),
    "product": ("product, width 576", "grey", "s"),
}
HUE = {"float32": "orange", "bfloat16": "green"}
MARKS = {"float32": "Do", "bfloat16": "s^"}
FIRST = (1, 128)
"""Sequences and tokens of context that most of the panels are about."""


def collect(scores: Scores) -> pd.DataFrame:
    """Return times over dense's, over those with tables in memory, rates over a plain product's, and the machine."""
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
        median = times.groupby("arm")["seconds"].median()
        tokens = batch * (context if phase == "prefill" else 1)
        for arm in sorted(present - {"product", "bandwidth"}):
            rows.append(
                {"panel": f"tokens a second, {phase}, {kind}", "what": arm, "x": x, "value": tokens / median[arm]}
            )
        if phase == "decode":
            for arm in PLACEMENTS:
                own, dense = (serving.rounds(scores, one, *part)["bytes"].iloc[0] for one in (arm, "dense"))
                rows.append({"panel": f"bytes, {kind}", "what": arm, "x": x, "value": 100 * own / dense})
            for arm in (arm for arm in DENSE if arm in present):
                rate = serving.relative_rate(scores, arm, "bandwidth", *part[1:])
                rows.append(mean_row(f"bound, {kind}", arm, x, rate))
    about = table(scores, STUDY, TIMES).iloc[0]
    rows.append({"panel": "machine", "what": about["machine"], "x": about["date"], "value": about["threads"]})
    return pd.DataFrame(rows)


def draw_placements(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the time of a token over dense's by placement and type, and the bytes over dense's."""
    for shift, kind in zip((-0.15, 0.15), KINDS, strict=True):
        for place, arm in enumerate(PLACEMENTS):
            bound = pick(data, panel=f"bytes, {kind}", what=arm, x="{} x {}".format(*FIRST))
            label = "bytes" if not place and kind == KINDS[0] else None
            axes.plot(place + shift, bound["value"], "_", color="black", ms=14, label=label)
            for batch, marker, offset in ((1, MARKS[kind][0], -0.06), (16, MARKS[kind][1], 0.06)):
                rows = pick(data, panel=f"decode, {kind}", what=arm, x=f"{batch} x {FIRST[1]}")
                looks = {"color": HUES[HUE[kind]], "marker": marker, "ms": 5, "ls": "none"}
                label = f"{kind}, {batch}" if not place else None
                draw_means(axes, place + shift + offset, rows, **looks, label=label)
    axes.axhline(100, color=PLAIN, lw=0.8, ls=":")
    axes.set_xticks(range(len(PLACEMENTS)), list(PLACEMENTS.values()))
    axes.set_xlim(-0.5, len(PLACEMENTS) - 0.5)
    axes.set_ylim(top=1.45 * axes.get_ylim()[1])  # for the legend
    axes.set(xlabel="layers with tables, in memory", ylabel="time of a token\nover dense's (%)")
    handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    axes.legend(handles.values(), handles, title="type, sequences")


def draw_file(axes: Axes, data: pd.DataFrame) -> None:
    """Draw the time of a token with a mapped file over that with tables in memory."""
    for kind, marker in zip(KINDS, ("D", "s"), strict=True):
        for batch, hollow in ((1, False), (16, True)):
            for place, arm in enumerate(FILES):
                rows = pick(data, panel=f"file, decode, {kind}", what=arm, x=f"{batch} x {FIRST[1]}")
                colour, at = HUES[HUE[kind]], place + 0.2 * (kind == KINDS[1]) + 0.08 * hollow - 0.14
                looks = {"color": colour, "marker": marker, "ms": 5, "ls": "none", "mfc": "white" if hollow else colour}
                draw_means(axes, at, rows, **looks, label=f"{kind}, {batch}" if not place else None)
    axes.axhline(100, color=PLAIN, lw=0.8, ls=":")
    axes.set_xticks(range(len(FILES)), list(FILES.values()), fontsize=SMALLEST)
    axes.set_xlim(-0.5, len(FILES) - 0.5)
    axes.set(ylabel="time of a token over that\nwith tables in memory (%)")
    axes.legend(title="type, sequences")


def draw_bound(axes: Axes, data: pd.DataFrame) -> None:
    """Draw bytes a second over those of a plain product, of dense decoding one sequence."""
    cases = [(kind, context) for kind in KINDS for context in (128, 2048)]
    for shift, (arm, (label, hue, marker)) in zip((-0.2, 0, 0.2), DENSE.items(), strict=True):
        for place, (kind, context) in enumerate(cases):
            rows = pick(data, panel=f"bound, {kind}", what=arm, x=f"1 x {context}")
            looks = {"color": HUES[hue], "marker": marker, "ms": 5, "ls": "none"}
            draw_means(axes, place + shift, rows, **looks, label=None if place else label)
    axes.axhline(100, color=PLAIN, lw=0.8, ls=":")
    axes.set_xticks(range(len(cases)), [f"{kind}\n{context:,}" for kind, context in cases], fontsize=SMALLEST)
    axes.set_xlim(-0.5, len(cases) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="type, tokens of context", ylabel="bytes a second\nover a plain product's (%)")
    axes.legend()


def draw(data: pd.DataFrame, scores: Scores) -> Figure:
    """Draw three panels; the title names the machine."""
    titles = {"a": "STEM against dense", "b": "STEM full, tables in a mapped file", "c": "Dense, one sequence"}
    figure, grid = sheet("ab;cc", 5.6, titles)
    draw_placements(grid["a"], data)
    draw_file(grid["b"], data)
    draw_bound(grid["c"], data)
    about = pick(data, panel="machine").iloc[0]
    machine, count = about["what"].split(" [")[0], int(about["value"])
    on = f"{machine}, {count} threads, {about['x'][:10]}"
    words = f"SmolLM2-135M-Instruct, quantised to 4 bits and unpacked, decodes on {on}; after 128 tokens in a, b"
    figure.suptitle(words, fontsize=SMALLEST, color=PLAIN)
    return figure
