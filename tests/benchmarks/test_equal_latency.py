"""The width of equal step time, from times that are known."""

import numpy as np
import pytest

from benchmarks.equal_latency import equal_factor


def test_the_line_is_solved_for_one():
    factors = np.array([0.6, 0.8, 1.0])
    ratios = np.tile(0.4 + 0.75 * factors, (5, 1))
    ratios[0] *= 3  # a round in which the machine did something else
    assert equal_factor(factors, ratios) == pytest.approx(0.8)
