import pytest

from stemrepro.scale import Point


def test_a_point_that_changes_nothing_is_the_scale(tiny):
    assert Point().at(tiny) == tiny


def test_tokens_are_whole_steps(tiny):
    step = tiny.training.batch * tiny.model.sequence
    assert Point(tokens=0.3).at(tiny).steps == round(0.3 * tiny.steps)
    assert Point(tokens=0.3).at(tiny).training.tokens % step == 0
    assert Point(tokens=1e-9).at(tiny).steps == 1


def test_width_keeps_the_heads(tiny):
    found = Point(width=0.5).at(tiny).model
    assert (found.width, found.ffn_width, found.heads) == (8, 12, 2)
    with pytest.raises(ValueError, match="a head needs an even whole width"):
        Point(width=0.3).at(tiny)


def test_rate_and_clip_are_factors(tiny):
    found = Point(rate=4, clip=10).at(tiny)
    assert (found.learning_rate, found.training.clip) == (4 * tiny.learning_rate, 10 * tiny.training.clip)
