"""A claim's effect as a small picture.

It shows every seed, the interval, what counts as no effect, the paper's number, and the same effect elsewhere.
"""

from typing import NamedTuple

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from stemrepro.verdicts.rule import VERDICTS

COLOUR = dict(zip(VERDICTS, ("#00705a", "#c8502d", "#8a8f96", "#97801f"), strict=True))
"""Readers with colour blindness can tell these apart; in grey, the words can."""
WIDTH, LEFT, RIGHT = 240, 8, 32
"""Width of the picture, and margins of its axis; the right margin holds the names of lines."""
MIDDLE, SEEDS, FLOOR, PITCH = 14, 22, 27, 9
"""Heights of the interval, of single seeds and of the axis; each further line moves the axis down by PITCH."""
TICKS = MaxNLocator(nbins=3, steps=[1, 2, 5, 10])


class Line(NamedTuple):
    """The same effect measured elsewhere, with its interval."""

    label: str
    mean: float
    low: float
    high: float


def papers_effect(row: dict) -> float | None:
    """Return the paper's number where it fits on the same axis, as an effect in the same unit; else None."""
    same = row["paper"] and row["paper"]["unit"] == row["unit"] and row["kind"] != "equivalent"
    return row["paper"]["value"] if same else None


def seeds_of(row: dict) -> list[float]:
    """Return the differences by seed, without those that were not measured."""
    return [value for value in row.get("differences") or () if value is not None]


def axis(rows: list[dict], lines: list[Line]) -> tuple[float, float]:
    """Return both ends of the axis that claims about one metric share, with the lines below them."""
    marks = [0.0]
    for row in rows:
        if row["ci_low"] is not None:
            paper = papers_effect(row)
            marks += [row["ci_low"], row["ci_high"], -row["smallest_effect"], row["smallest_effect"], *seeds_of(row)]
            marks += [] if paper is None else [paper]
    marks += [end for line in lines for end in (line.low, line.high)]
    pad = 0.05 * (max(marks) - min(marks)) or 1.0
    return min(marks) - pad, max(marks) + pad


def ticks(left: float, right: float) -> list[float]:
    """Return three or four round numbers along an axis."""
    return [float(value) for value in TICKS.tick_values(left, right) if left <= value <= right]


def drawing(row: dict, limits: tuple[float, float], lines: list[Line]) -> Markup:
    """Return the picture as SVG, in the colours of the page; empty where there is no interval.

    Args:
        row: of verdicts.json.
        limits: both ends of the axis.
        lines: what is drawn below the claim's own interval.
    """
    if row["ci_low"] is None:
        return Markup("")
    left, right = limits
    m = row["smallest_effect"]
    floor = FLOOR + PITCH * len(lines)

    def x(value: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * (value - left) / (right - left):.0f}"  # one unit is about one pixel

    seeds, marks = seeds_of(row), ticks(left, right)
    strokes = f"M{x(0)} 1V{floor}M{LEFT} {floor}H{WIDTH - RIGHT}" + "".join(f"M{x(value)} {floor}v3" for value in marks)
    parts = [
        f'<path class=n d="M{x(-m)} 2H{x(m)}V{floor - 1}H{x(-m)}z"/>',
        f'<path class=a d="{strokes}"/>',
        f'<path class=b d="M{x(row["ci_low"])} {MIDDLE}H{x(row["ci_high"])}"/>',
        f'<path class=o d="M{x(row["ours"])} {MIDDLE}h0"/>',
    ]
    dots = [(value, SEEDS) for value in seeds]
    if lines:
        heights = [FLOOR + PITCH * n + 4 for n in range(len(lines))]
        bars = "".join(f"M{x(line.low)} {y}H{x(line.high)}" for line, y in zip(lines, heights, strict=True))
        parts.append(f'<path class=line d="{bars}"/>')
        dots += [(line.mean, y) for line, y in zip(lines, heights, strict=True)]
    if dots:  # strokes of no length with round ends are dots
        parts.append(f'<path class=s d="{"".join(f"M{x(value)} {y}h0" for value, y in dots)}"/>')
    if (paper := papers_effect(row)) is not None:
        parts.append(f'<path class=paper d="M{x(paper)} {MIDDLE - 6}l5 6l-5 6l-5-6z"/>')
    labels = "".join(f'<tspan x="{x(value)}">{value:g}</tspan>' for value in marks)
    by_seed = f"; seeds {', '.join(f'{value:+.2g}' for value in seeds)}" if seeds else ""
    title = f"no effect up to {m:g}{by_seed}{''.join(f'; at {line.label} {line.mean:+.3g}' for line in lines)}"
    names = [
        Markup('<tspan class=u x="{}" y="{}">{}</tspan>').format(WIDTH, FLOOR + PITCH * n + 7, line.label)
        for n, line in enumerate(lines)
    ]
    head = Markup('<svg viewBox="0 0 {} {}" role=img><title>{}</title>')
    foot = Markup('<text y="{}">{}{}<tspan class=u x="{}" y="{}">{}</tspan></text></svg>')
    return (
        head.format(WIDTH, floor + 23, title)
        + Markup("".join(parts))
        + foot.format(floor + 12, Markup(labels), Markup("").join(names), WIDTH - RIGHT, floor + 21, row["unit"])
    )
