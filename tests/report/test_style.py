import pytest
import seaborn as sns

from stemrepro.arm import HUES
from stemrepro.report.style import ARM_COLOUR, ARM_LABEL, ARM_MARKER, plt, render, settle, use_style


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


def test_settling_moves_nothing_that_could_be_seen():
    figure = draw(0.0)
    figure.draw_without_rendering()
    before = [axes.get_position().bounds for axes in figure.axes]
    settle(figure)
    for old, axes in zip(before, figure.axes, strict=True):
        assert axes.get_position().bounds == pytest.approx(old, abs=1e-3)  # solving twice moves a little, too
    plt.close("all")


def test_every_arm_has_a_look_of_its_own(book):
    use_style(book.arms)
    looks = [(ARM_COLOUR[arm], ARM_MARKER[arm]) for arm in book.arms]
    assert len(set(looks)) == len(looks)
    assert len({ARM_LABEL[arm] for arm in book.arms}) == len(book.arms)


def test_hues_are_those_that_the_colour_blind_tell_apart():
    assert list(HUES.values())[1:] == list(sns.color_palette("colorblind", 10).as_hex())
