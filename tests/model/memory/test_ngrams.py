"""Sizes of hashed tables against a sieve."""

import pytest

from stemrepro.model.memory.ngrams import primes_from


@pytest.mark.parametrize(("start", "number"), [(0, 5), (2, 1), (4, 3), (53, 32), (90, 4)])
def test_primes_are_those_of_a_sieve(start, number):
    left, primes = set(range(2, 1000)), []
    while left:
        prime = min(left)
        primes.append(prime)
        left -= set(range(prime, 1000, prime))
    assert list(primes_from(start, number)) == [prime for prime in primes if prime >= start][:number]
