"""The error of a mean over pairs that share countries."""

import numpy as np
import pytest

from stemrepro.measures.clusters import pair_error


def grid(size):
    first, second = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    kept = first != second
    return first[kept].astype(str), second[kept].astype(str)


def test_it_is_the_spread_over_draws_of_new_countries():
    """Values are the sum of an effect of each country, so the mean is twice the effects' mean."""
    first, second = grid(30)
    effects = np.random.default_rng(1).normal(size=30)
    values = effects[first.astype(int)] + effects[second.astype(int)]
    error = pair_error(values[None], np.ones((1, len(values)), bool), first, second)
    assert error == pytest.approx(2 * effects.std(ddof=1) / np.sqrt(30), rel=0.05)
    independent = values.std(ddof=1) / np.sqrt(len(values))
    assert error > 3 * independent


def test_seeds_are_averaged_and_unknown_pairs_left_out():
    first, second = grid(12)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, len(first)))
    kept = rng.random(values.shape) < 0.7
    error = pair_error(values, kept, first, second)
    assert error == pair_error(np.where(kept, values, 1e6), kept, first, second)
    assert error < pair_error(values[:1], kept[:1], first, second)


def test_of_too_few_countries_the_error_is_not_known():
    one = np.array(["a", "a"]), np.array(["b", "c"])
    assert np.isnan(pair_error(np.ones((1, 2)), np.ones((1, 2), bool), *one))
    assert np.isnan(pair_error(np.ones((1, 2)), np.zeros((1, 2), bool), *one))
