"""The shape of Engram, without torch: its n-grams, its heads and the sizes of their tables."""

from functools import cache
from itertools import count, islice
from math import isqrt

ORDERS = (2, 3)
"""Tokens of an n-gram, as in the demo and the paper."""
HEADS = 8
"""Hash heads for each n, as in the demo and the paper."""
KERNEL = 4
"""Tokens that the convolution takes in, as in the demo and the paper."""


@cache
def primes_from(start: int, number: int) -> tuple[int, ...]:
    """Return the first primes that are `start` or more: (4, 3) -> (5, 7, 11)."""
    return tuple(islice((n for n in count(max(2, start)) if all(n % d for d in range(2, isqrt(n) + 1))), number))
