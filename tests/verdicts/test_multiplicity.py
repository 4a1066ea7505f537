"""Procedures for many claims against other libraries."""

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from stemrepro.verdicts.multiplicity import benjamini_hochberg_levels, holm_levels


def test_holm_levels_reject_what_statsmodels_rejects(monkeypatch):
    monkeypatch.setattr("gc.collect", lambda: 0)  # statsmodels calls it each time, half a second in a large process
    generator = np.random.default_rng(2)
    for _ in range(200):
        p = list(generator.beta(0.2, 3, size=generator.integers(1, 9)))
        padded = p + [1.0] * (8 - len(p))
        expected = multipletests(padded, 0.05, "holm")[0][: len(p)]
        assert [a <= b for a, b in zip(p, holm_levels(p), strict=True)] == list(expected)


def test_benjamini_hochberg_levels_reject_what_scipy_rejects():
    generator = np.random.default_rng(3)
    for _ in range(200):
        p = list(generator.beta(0.3, 3, size=generator.integers(1, 15)))
        expected = stats.false_discovery_control(p, method="bh") <= 0.10
        assert [a <= b for a, b in zip(p, benjamini_hochberg_levels(p), strict=True)] == list(expected)
