"""Procedures for many claims against other libraries."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from stemrepro.verdicts.multiplicity import benjamini_hochberg, holm


def test_holm_is_that_of_statsmodels(monkeypatch):
    monkeypatch.setattr("gc.collect", lambda: 0)  # statsmodels calls it each time, half a second in a large process
    generator = np.random.default_rng(2)
    for _ in range(200):
        p = list(generator.beta(0.2, 3, size=generator.integers(1, 9)))
        padded = p + [1.0] * (8 - len(p))
        assert holm(p) == pytest.approx(multipletests(padded, 0.05, "holm")[1][: len(p)])


def test_more_primary_claims_than_places_are_all_counted():
    assert holm([0.004] * 10) == pytest.approx([0.04] * 10)


def test_benjamini_hochberg_is_that_of_scipy():
    generator = np.random.default_rng(3)
    for _ in range(200):
        p = list(generator.beta(0.3, 3, size=generator.integers(1, 15)))
        assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p, method="bh"))


def test_an_adjusted_p_is_never_below_the_p_itself():
    """Else a word could say more than the 95% interval."""
    generator = np.random.default_rng(4)
    for procedure in (holm, benjamini_hochberg):
        p = generator.beta(0.2, 3, size=50)
        assert (np.array(procedure(list(p))) >= p - 1e-15).all()
