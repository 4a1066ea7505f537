"""A claim's effect as a small picture: every seed, the interval, what counts as no effect, and the paper's number."""

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from stemrepro.claims import VERDICTS

COLOUR = dict(zip(VERDICTS, ("#00705a", "#3f8fc5", "#c8502d", "#8a8f96", "#c9b458"), strict=True))
"""Told apart by the colour-blind, and in grey by their words."""
WIDTH, MARGIN, MIDDLE = 230, 8, 14
"""Of the picture, beside its axis, and the height of the interval, in units of the picture."""
TICKS = MaxNLocator(nbins=3, steps=[1, 2, 5, 10])


def papers_effect(row: dict) -> float | None:
    """The paper's number where it can stand on the same axis: an effect in the same unit."""
    same = row["paper"] and row["paper"]["unit"] == row["unit"] and row["kind"] != "equivalent"
    return row["paper"]["value"] if same else None


def seeds_of(row: dict) -> list[float]:
    """The differences by seed, as far as they are known."""
    return [value for value in row.get("differences") or () if value is not None]


def axis(rows: list[dict]) -> tuple[float, float]:
    """From where to where the axis goes that claims about one metric share."""
    marks = [0.0]
    for row in rows:
        if row["ci_low"] is not None:
            paper = papers_effect(row)
            marks += [row["ci_low"], row["ci_high"], -row["smallest_effect"], row["smallest_effect"], *seeds_of(row)]
            marks += [] if paper is None else [paper]
    pad = 0.05 * (max(marks) - min(marks))
    return min(marks) - pad, max(marks) + pad


def ticks(left: float, right: float) -> list[float]:
    """Round numbers along an axis, three or four."""
    return [float(value) for value in TICKS.tick_values(left, right) if left <= value <= right]


def drawing(row: dict, limits: tuple[float, float], words: str) -> Markup:
    """The picture as SVG; empty where there is no interval.

    Args:
        limits: ends of the axis.
        words: what it says, for those who hear it.
    """
    if row["ci_low"] is None:
        return Markup("")
    (left, right), m = limits, row["smallest_effect"]

    def x(value: float) -> float:
        return round(MARGIN + (WIDTH - 2 * MARGIN) * (value - left) / (right - left), 1)

    colour, seeds, marks = COLOUR[row["verdict"]], seeds_of(row), ticks(left, right)
    lines = f"M{x(0)} 1V27M{MARGIN} 27H{WIDTH - MARGIN}" + "".join(f"M{x(value)} 27v3" for value in marks)
    parts = [
        f'<rect class="nothing" x="{x(-m)}" y="2" width="{round(x(m) - x(-m), 1)}" height="24"/>',
        f'<path class="axis" d="{lines}"/>',
        f'<path d="M{x(row["ci_low"])} {MIDDLE}H{x(row["ci_high"])}" stroke="{colour}" stroke-width="4"/>',
        f'<circle cx="{x(row["ours"])}" cy="{MIDDLE}" r="4.5" fill="{colour}"/>',
    ]
    if seeds:  # lines of no length with round ends are dots
        parts.append(f'<path class="seed" d="{"".join(f"M{x(value)} {MIDDLE + 8}h0" for value in seeds)}"/>')
    if (paper := papers_effect(row)) is not None:
        parts.append(f'<path class="paper" d="M{x(paper)} {MIDDLE - 6} l5 6 l-5 6 l-5 -6 z"/>')
    parts += [f'<text x="{x(value)}" y="39">{value:g}</text>' for value in marks]
    by_seed = f"; by seed {', '.join(f'{value:+.3g}' for value in seeds)}" if seeds else ""
    label = f"{words}: no effect is within {m:g} of 0{by_seed}"
    head = Markup('<svg class="interval" viewBox="0 0 {} 50" role="img"><title>{}</title>').format(WIDTH, label)
    return (
        head
        + Markup("".join(parts))
        + Markup('<text class="unit" x="{}" y="48">{}</text></svg>').format(WIDTH - MARGIN, row["unit"])
    )
