"""A claim's effect as a small picture.

It shows every seed, the interval, what counts as no effect, the paper's number, and the same effect elsewhere.
`bar` is the same in one line, for claims below each other on a common axis.
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


BAR_HEIGHT, BAR_MIDDLE = 18, 9
SQUARE, IN_A_ROW = 9, 22


def in_multiples(row: dict) -> dict:
    """Return a row of verdicts.json with its effect in multiples of the smallest that counts."""
    m = row["smallest_effect"]
    paper = row["paper"] and row["paper"] | {"value": row["paper"]["value"] / m}
    numbers = {key: row[key] / m for key in ("ours", "ci_low", "ci_high", "smallest_effect")}
    return row | numbers | {"paper": paper, "differences": ()}


def common_axis(rows: list[dict]) -> tuple[tuple[float, float], str | None]:
    """Return both ends of an axis for all rows that have an interval, and their unit.

    The unit is None where they have several; the axis is then in multiples of the smallest effect that counts.
    """
    bars = [row | {"differences": ()} for row in rows if row["ci_low"] is not None]
    units = {row["unit"] for row in bars}
    if len(units) > 1:
        return axis([in_multiples(row) for row in bars], []), None
    return axis(bars, []), next(iter(units), "")


def _place(value: float, limits: tuple[float, float]) -> str:
    left, right = limits
    return f"{LEFT + (WIDTH - 2 * LEFT) * (value - left) / (right - left):.0f}"


def bar(row: dict, limits: tuple[float, float]) -> Markup:
    """Return a row's interval as SVG in one line; empty where it has none.

    Args:
        row: of verdicts.json, in the unit of the axis.
        limits: both ends of the axis.
    """
    if row["ci_low"] is None:
        return Markup("")
    low, mean, high, least, most, zero = (
        _place(value, limits)
        for value in (row["ci_low"], row["ours"], row["ci_high"], -row["smallest_effect"], row["smallest_effect"], 0)
    )
    parts = [
        f'<path class=n d="M{least} 0H{most}V{BAR_HEIGHT}H{least}z"/>',
        f'<path class=a d="M{zero} 0V{BAR_HEIGHT}"/>',
        f'<path class=b d="M{low} {BAR_MIDDLE}H{high}"/>',
        f'<path class=o d="M{mean} {BAR_MIDDLE}h0"/>',
    ]
    if (paper := papers_effect(row)) is not None:
        parts.append(f'<path class=paper d="M{_place(paper, limits)} {BAR_MIDDLE - 6}l5 6l-5 6l-5-6z"/>')
    return Markup('<svg viewBox="0 0 {} {}" aria-hidden=true>{}</svg>').format(
        WIDTH, BAR_HEIGHT, Markup("").join(map(Markup, parts))
    )


def scale_line(limits: tuple[float, float], label: str) -> Markup:
    """Return the axis below bars as SVG: a line with round numbers, and what they are."""
    marks = ticks(*limits)
    strokes = f"M{LEFT} 0.5H{WIDTH - LEFT}" + "".join(f"M{_place(value, limits)} 0v4" for value in marks)
    numbers = Markup("").join(
        Markup('<tspan x="{}" y="13">{:g}</tspan>').format(_place(value, limits), value) for value in marks
    )
    return Markup(
        '<svg viewBox="0 0 {} 26" role=img><title>{}</title><path class=a d="{}"/><text>{}'
        '<tspan class=u x="{}" y="24">{}</tspan></text></svg>'
    ).format(WIDTH, label, strokes, numbers, WIDTH - LEFT, label)


def squares(same: list[bool]) -> Markup:
    """Return one square per printed number as SVG: full where it comes out as printed; empty without numbers."""
    if not same:
        return Markup("")
    parts = []
    for n, full in enumerate(sorted(same, reverse=True)):
        x, y = LEFT + n % IN_A_ROW * (SQUARE + 1), 1 + n // IN_A_ROW * (SQUARE + 1)
        parts.append(f'<path class={"full" if full else "open"} d="M{x} {y}h{SQUARE - 2}v{SQUARE - 2}h{2 - SQUARE}z"/>')
    height = 2 + (SQUARE + 1) * (1 + (len(same) - 1) // IN_A_ROW)
    return Markup('<svg viewBox="0 0 {} {}" role=img><title>{} of {} as printed</title>{}</svg>').format(
        WIDTH, height, sum(same), len(same), Markup("").join(map(Markup, parts))
    )
