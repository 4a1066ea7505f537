"""The sentence about an unknown name."""

from stemrepro.common.errors import unknown


def test_of_many_names_the_nearest_are_said_to_be_some():
    some, many = (unknown("shape", "x", [f"x{n}y{n}" for n in range(count)], "here") for count in (2, 30))
    assert str(some) == "shape 'x' is unknown (here has x0y0, x1y1)"
    assert str(many).startswith("shape 'x' is unknown (here has among others x")
