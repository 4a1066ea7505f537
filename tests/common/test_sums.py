"""Sums: each addition rounded, in every version of Python."""

import math

from stemrepro.common.sums import total


def test_a_sum_is_rounded_from_left_to_right():
    values = [0.1] * 10
    assert total(values) == 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1
    assert total(values) != math.fsum(values) == 1.0
    assert total(iter(())) == 0.0
