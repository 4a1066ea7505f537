"""Sums of floats that every version of Python gives alike."""

import operator
from collections.abc import Iterable
from functools import reduce


def total(values: Iterable[float]) -> float:
    """Return the sum from left to right, rounded at each step.

    The built-in sum is more exact from Python 3.12 on, so its last digits depend on the version.
    """
    return reduce(operator.add, values, 0.0)
