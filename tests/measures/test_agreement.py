from itertools import combinations

import numpy as np
import pytest

from stemrepro.measures.agreement import agreement
from stemrepro.verdicts.effect import Effect

LAST = {"a": [3.0, 3.01, 3.02], "b": [2.0, 2.02, 2.01], "c": [2.0, 2.0, 2.03], "d": [1.0, 1.02, 1.01]}
"""Losses at the last rung by arm: a > b, c > d; nothing is to tell between b and c."""


def called(cheap, seeds, last=LAST):
    """Agreement of a setting whose losses are given with the last rung."""
    effects = [
        [Effect(np.subtract(losses[high], losses[low])) for losses in (last, cheap)]
        for high, low in combinations(cheap, 2)
    ]
    return agreement(effects, seeds)


def test_a_setting_that_is_the_last_rung_agrees_with_it():
    result = called(LAST, 3)
    assert (result.pairs, result.same_sign, result.right, result.wrong) == (5, 1, 1, 0)


def test_a_setting_with_all_signs_turned_is_wrong_in_all():
    result = called({arm: [-loss for loss in losses] for arm, losses in LAST.items()}, 3)
    assert (result.pairs, result.same_sign, result.right, result.wrong) == (5, 0, 0, 1)


def test_every_choice_of_seeds_counts():
    """Of the last seed alone the sign is wrong, so of three pairs of seeds two have it, and none is sure."""
    early = {"a": [3.0, 3.0, 2.9], "b": [2.9, 2.7, 3.4]}
    result = called(early, 2)
    means = [np.mean([early["a"][s] - early["b"][s] for s in chosen]) for chosen in combinations(range(3), 2)]
    assert result.same_sign == pytest.approx(np.mean([mean > 0 for mean in means]))
    assert 0 < result.same_sign < 1
    assert (result.pairs, result.right, result.wrong) == (1, 0, 0)


def test_nothing_to_agree_on_is_nan():
    result = called({"b": [1, 1, 1], "c": [2, 2, 2.1]}, 3)
    assert result.pairs == 0
    assert np.isnan(result.same_sign)
