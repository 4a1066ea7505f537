"""The style guide, and all figures of the committed scores against what code can see of it."""

import matplotlib as mpl
import pytest
import seaborn as sns
from matplotlib.lines import Line2D

from stemrepro.config.arm import HUES
from stemrepro.measures.base import scores_of
from stemrepro.report.analyse import module
from stemrepro.report.style import (
    ARM_COLOUR,
    ARM_LABEL,
    ARM_MARKER,
    footer,
    note,
    plt,
    render,
    settle,
    sheet,
    use_style,
)
from tests.conftest import ROOT
from tests.report.looks import alike, faults, lightness


def draw(nudge, arms=None):
    """A figure with a constrained layout, moved by a hair as the solver's last digits would."""
    use_style(arms or {})
    figure, (left, right) = plt.subplots(1, 2, layout="constrained", figsize=(4, 2))
    for axes in (left, right):
        axes.plot([0, 1], [1, 3])
    figure.get_layout_engine().set(rect=(nudge, 0, 1 - nudge, 1))
    return figure


def test_the_last_digits_of_a_layout_leave_no_trace():
    plain, nudged = draw(0.0), draw(1e-9)
    assert render(plain, "svg") != render(nudged, "svg")
    settle(plain)
    settle(nudged)
    assert render(plain, "svg") == render(nudged, "svg")
    assert render(plain, "pdf") == render(nudged, "pdf")
    plt.close("all")


USERS = {
    "text.usetex": True,
    "axes.grid": True,
    "svg.fonttype": "path",
    "savefig.bbox": "tight",
    "font.size": 20,
    "savefig.facecolor": "red",
    "axes.prop_cycle": plt.cycler(color="rg"),
    "path.simplify": False,
}
"""What a user's matplotlibrc may say."""


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_the_users_settings_of_matplotlib_leave_no_trace(kind):
    plain = render(draw(0.0), kind)
    with mpl.rc_context(USERS):
        assert render(draw(0.0), kind) == plain
    plt.close("all")


def test_settling_moves_nothing_that_could_be_seen():
    figure = draw(0.0)
    figure.draw_without_rendering()
    before = [axes.get_position().bounds for axes in figure.axes]
    settle(figure)
    for old, axes in zip(before, figure.axes, strict=True):
        assert axes.get_position().bounds == pytest.approx(old, abs=1e-3)  # solving twice moves a little, too
    plt.close("all")


def test_every_arm_has_a_look_of_its_own(catalog):
    """Arms of one hue differ in marker, or they would be alike in grey."""
    use_style(catalog.arms)
    assert len({(ARM_COLOUR[arm], ARM_MARKER[arm]) for arm in catalog.arms}) == len(catalog.arms)
    assert len({ARM_LABEL[arm] for arm in catalog.arms}) == len(catalog.arms)


def test_hues_are_those_that_the_colour_blind_tell_apart():
    """Seaborn's, but for a yellow that shows on a white page, and is lighter than all that is like it to them."""
    theirs = dict(zip(list(HUES)[1:], sns.color_palette("colorblind", 10).as_hex(), strict=True))
    assert {name: colour for name, colour in theirs.items() if HUES[name] != colour} == {"yellow": "#ece133"}
    assert max(lightness(colour) for colour in HUES.values()) < 83  # of 100; seaborn's yellow has 88
    assert all(lightness(HUES["yellow"]) - lightness(HUES[hue]) > 10 for hue in ("orange", "brown", "green"))


DRAWN = {path.parent.name: path.parent.parent.name for path in ROOT.glob("results/*/*/figure.svg")}
"""Every recipe that has a committed figure, and its scale."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DRAWN))
def test_nothing_that_code_can_see_is_wrong_with_a_figure(catalog, name, few_draws, monkeypatch):
    monkeypatch.chdir(ROOT)
    use_style(catalog.arms)
    recipe, scale = catalog.recipes[name], DRAWN[name]
    scores = scores_of(name, catalog, scale, ROOT / "scores" / scale)
    drawn = module(ROOT / f"analysis/{name}.py", [])
    data = drawn.collect(scores)
    for draw in (drawn.draw, *([drawn.front] if recipe.front else [])):
        figure = draw(data, scores)
        footer(figure, "scale laptop, 3 to 5 seeds, hash of settings 123456789abc, of data 123456789abc")
        settle(figure)
        assert faults(figure) == []
        plt.close(figure)


def spoilt(what):
    """A good figure of two panels, with one thing wrong."""
    use_style({})
    figure, grid = sheet("ab", 2.5, {"a": "One", "b": "Other"})
    for axes in grid.values():
        axes.set(xlabel="x", ylabel="y", xlim=(0, 1), ylim=(0, 1))
    axes = grid["a"]
    for marker, height in (("o", 0.2), ("s", 0.4)):
        axes.plot([0.1, 0.9], [height, height], color="#de8f05", marker=marker, label=marker)
    axes.errorbar(0.5, 0.3, yerr=0.1, color="black")
    axes.legend(loc="upper left")
    what(figure, axes)
    settle(figure)
    return faults(figure)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda figure, axes: figure.text(0.95, 0.5, "over the edge"), "leaves the figure"),
        (lambda figure, axes: axes.set_title("a  One " * 9), "overlap"),
        (lambda figure, axes: axes.text(0.5, 0.7, "small", fontsize=5), "has 5 points"),
        (lambda figure, axes: axes.text(0.5, 0.7, "pale", color=HUES["cyan"]), "too light to read"),
        (lambda figure, axes: axes.set_xlabel(""), "x has no label"),
        (lambda figure, axes: axes.errorbar(0.5, 0.95, yerr=0.2, color="black"), "a bar leaves its axes"),
        (lambda figure, axes: axes.bar(0.5, 1.2, color="black", width=0.01), "a bar leaves its axes"),
        (lambda figure, axes: axes.plot([0, 1], [0.93, 0.93], color="black"), "the legend covers what is drawn"),
        (lambda figure, axes: axes.plot([0, 1], [0.5, 0.5], color="#0173b2"), "explained nowhere"),
        (lambda figure, axes: axes.plot(0.5, 0.5, "P", color="black", label="more"), "has no legend"),
    ],
)
def test_each_fault_is_seen(what, words):
    assert any(words in fault for fault in spoilt(what))
    assert spoilt(lambda figure, axes: None) == []


def test_words_are_darkened_on_paper_and_stay_white_in_a_dark_bar():
    axes = plt.figure().subplots()
    for colour in ("white", HUES["cyan"], HUES["black"]):
        note(axes, "words", (0, 0), (0, 0), color=colour)
    white, cyan, black = (text.get_color() for text in axes.texts)
    assert (white, black) == ("white", HUES["black"])
    assert 40 < lightness(cyan) <= 50  # no darker than a contrast of 4.5 asks for
    plt.close("all")


def test_marks_of_one_shape_must_differ_in_grey():
    """Blue and red are as dark as each other; yellow is lighter."""
    blue, red, yellow = (Line2D([], [], color=HUES[hue], marker="o") for hue in ("blue", "red", "yellow"))
    assert alike([blue, red], ["blue", "red"]) == ["'blue' and 'red' are alike in grey"]
    assert alike([blue, yellow], ["blue", "yellow"]) == []
    assert alike([blue, Line2D([], [], color=HUES["red"], marker="s")], ["blue", "square"]) == []
