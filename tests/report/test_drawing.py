"""A claim's small picture: everything is where its axis has it."""

import re

import pytest

from stemrepro.report.drawing import Line, axis, drawing
from tests.report.made_up import row


def drawn(made: dict) -> str:
    """A claim's picture on an axis of its own."""
    return drawing(made, axis([made], []), [])


def test_the_small_drawing_keeps_its_proportions():
    picture = drawn(row("a", "supported"))
    low, high = map(float, re.search(r'd="M([\d.]+) 14H([\d.]+)"', picture).groups())
    zero = float(re.search(r'class=a d="M([\d.]+) 1V', picture)[1])
    middle = float(re.search(r'class=o d="M([\d.]+) 14h0"', picture)[1])
    assert (middle - zero) / (low - zero) == pytest.approx(2, abs=0.05)
    assert (high - zero) / (low - zero) == pytest.approx(3, abs=0.05)
    diamond = "l5 6l-5 6l-5-6z"
    assert diamond in picture
    other_unit = {"value": 3, "unit": "points", "source": "s", "confidence": "read"}
    assert diamond not in drawn(row("a", "supported", paper=other_unit))
    assert drawn(row("a", "supported", ci_low=None)) == ""


def test_seeds_and_ticks_stand_where_the_axis_has_them():
    """On the axis from -0.5 to 1 the place of a value is linear; the differences are also in the title."""
    made = row("a", "supported", differences=[0.0, 0.25, None, 0.5], unit="<u>")
    picture = drawing(made, (-0.5, 1.0), [])
    seeds = [float(x) for x in re.findall(r"M([\d.]+) 22h0", picture)]
    assert seeds == pytest.approx([8 + 200 * (value + 0.5) / 1.5 for value in (0, 0.25, 0.5)], abs=0.51)
    ticks = {float(label): float(x) for x, label in re.findall(r'<tspan x="([\d.]+)">([-\d.]+)<', picture)}
    assert 0.0 in ticks
    assert all(x == pytest.approx(8 + 200 * (value + 0.5) / 1.5, abs=0.51) for value, x in ticks.items())
    assert "seeds +0, +0.25, +0.5" in picture
    assert "&lt;u&gt;" in picture


def test_claims_about_one_metric_share_an_axis():
    near, far = row("a", "contradicted"), row("b", "contradicted", ci_high=2.0, differences=[-1.0, 3.0])
    left, right = axis([near, far], [])
    assert left < -1.0 < 3.0 < right
    assert axis([near], [Line("286", 0.0, -7.0, 9.0)])[0] < -7.0
    assert axis([row("c", "contradicted", ci_low=None)], []) == (-1.0, 1.0)


def test_the_same_effect_at_other_scales_is_below_line_by_line():
    made = row("a", "supported")
    picture = drawing(made, (-0.5, 1.0), [Line("2.4", 0.25, 0.0, 0.5), Line("<gpu>", -0.25, -0.5, 0.0)])
    bars = re.findall(r"M([\d.]+) (\d+)H([\d.]+)", re.search(r'class=line d="([^"]+)"', picture)[1])
    place = {value: 8 + 200 * (value + 0.5) / 1.5 for value in (-0.5, -0.25, 0.0, 0.25, 0.5)}
    assert [(float(low), float(high)) for low, _, high in bars] == [
        (pytest.approx(place[0.0], abs=0.51), pytest.approx(place[0.5], abs=0.51)),
        (pytest.approx(place[-0.5], abs=0.51), pytest.approx(place[0.0], abs=0.51)),
    ]
    heights = [int(y) for _, y, _ in bars]
    dots = {int(y): float(x) for x, y in re.findall(r"M([\d.]+) (\d+)h0", picture)}
    assert [dots[y] for y in heights] == pytest.approx([place[0.25], place[-0.25]], abs=0.51)
    assert heights[0] < heights[1] < int(re.search(r"V(\d+)M8 ", picture)[1])  # above the axis
    assert "&lt;gpu&gt;" in picture
    assert "at 2.4 +0.25" in picture
