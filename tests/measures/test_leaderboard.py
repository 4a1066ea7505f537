"""Places on the leaderboard: on made-up leads, against counting by hand."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from stemrepro.measures.leaderboard import standings

SEEDS = np.array([0.3, -0.2, 0.1, 0.0, -0.2])
"""Luck that all arms share, so that pairs have none of it."""


def lead(mean, noise=()):
    return mean + SEEDS + 0.01 * np.array([*noise, *[0.0] * (5 - len(noise))])


def test_the_first_has_the_largest_lead_and_shared_luck_decides_nothing():
    places = standings({"a": lead(1, [1, -1, 1]), "b": lead(5, [-1, 1]), "dense": lead(0)})
    assert [(place.arm, place.rank, place.best, place.worst) for place in places] == [
        ("b", 1, 1, 1), ("a", 2, 2, 2), ("dense", 3, 3, 3),
    ]  # fmt: skip
    assert places[0].ahead > 0.999
    assert np.isnan(places[-1].ahead)


def test_arms_that_cannot_be_told_apart_share_their_ranks():
    places = standings({"a": lead(1, [40, -30, 5, 9]), "b": lead(1, [-20, 35, 4, 2]), "c": lead(-3, [1, 2, 3])})
    assert [(place.best, place.worst) for place in places] == [(1, 2), (1, 2), (3, 3)]


def test_one_arm_alone_is_first():
    """As dense is where a new method has no study yet."""
    (place,) = standings({"dense": lead(0, [1, 2])})
    assert place[:4] == ("dense", 1, 1, 1)
    assert np.isnan(place.ahead)


def test_the_chance_of_being_ahead_is_one_less_the_one_sided_p():
    first, second = lead(1.0, [3, -1, 2, 4]), lead(0.99, [1, 2, -2, 3])
    places = standings({"second": second, "first": first})
    assert [place.arm for place in places] == ["first", "second"]
    assert places[0].ahead == pytest.approx(1 - ttest_rel(first, second, alternative="greater").pvalue)


def test_a_rank_counts_what_holm_leaves_of_all_pairs():
    """One of two comparisons has p = 0.03, the other 0.9: alone it would be shown, among two it isn't."""
    noise = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    third = noise - noise.mean()
    shift = 2.9 * third.std(ddof=1) / np.sqrt(5)
    alone = standings({"a": shift + third, "b": np.zeros(5)})
    both = standings({"a": shift + third, "b": np.zeros(5), "c": shift + 0.1 * third[::-1]})
    assert ttest_rel(shift + third, np.zeros(5)).pvalue == pytest.approx(0.044, abs=0.001)
    assert [(place.best, place.worst) for place in alone] == [(1, 1), (2, 2)]
    assert next(place for place in both if place.arm == "a").worst == 3
