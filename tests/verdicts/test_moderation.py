"""Variances moderated by those of other contrasts: what is estimated, and how often null families err."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import polygamma

from stemrepro.verdicts import moderation
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.moderation import MOST_DF, Prior, fitted, trigamma_inverse
from stemrepro.verdicts.multiplicity import benjamini_hochberg


def family(generator, count, seeds, df, sd=0.04, shared=0.0):
    """Null contrasts whose 1 / variance follow a scaled chi square; `shared` is the SD of what all have in common."""
    sds = np.full(count, sd) if df is None else sd * np.sqrt(df / generator.chisquare(df, count))
    noise = generator.normal(size=(count, seeds)) * sds[:, None] - generator.normal(0, shared, seeds)
    return [Contrast(row) for row in noise]


@pytest.mark.parametrize("value", [1e-3, 0.1, 1.0, 1.645, 50.0])
def test_trigamma_is_inverted(value):
    assert polygamma(1, trigamma_inverse(value)) == pytest.approx(value)


def test_what_made_up_variances_follow_is_found(monkeypatch):
    """Of variances drawn by scipy: s^2 is sd^2 times F with the degrees of freedom of both."""
    monkeypatch.setattr(moderation, "MOST_DF", np.inf)
    variances = 0.03**2 * stats.f.rvs(2, 5, size=20000, random_state=0)
    contrasts = [Contrast(np.sqrt(v) * np.array([-1.0, 0.0, 1.0])) for v in variances]
    assert [contrasts[7].seed_variance[0], contrasts[7].seed_variance[1]] == pytest.approx([variances[7], 2])
    prior = fitted(contrasts)
    assert (prior.sd, prior.df) == (pytest.approx(0.03, rel=0.03), pytest.approx(5, rel=0.1))


def test_equal_variances_count_for_no_more_than_the_bound():
    prior = fitted(family(np.random.default_rng(0), 300, 5, None))
    assert prior.df == MOST_DF
    assert prior.sd == pytest.approx(0.04, rel=0.05)


def test_a_variance_is_the_weighted_mean_of_its_own_and_the_others():
    contrast = Contrast(np.array([0.01, 0.02, 0.06]))
    own, prior = np.var(contrast.differences, ddof=1), Prior(0.05, 3.0)
    moderated = prior.moderated(contrast)
    assert moderated.seed_variance == (pytest.approx((3 * 0.05**2 + 2 * own) / 5), 5.0)
    half = stats.t.ppf(0.975, 5) * np.sqrt((3 * 0.05**2 + 2 * own) / 5 / 3)
    assert moderated.interval(0.05) == pytest.approx((0.03 - half, 0.03 + half))
    assert moderated.mean == contrast.mean


def test_seeds_enough_and_single_ones_stay_as_they_are():
    five, one = Contrast(np.arange(5.0)), Contrast(np.array([1.0]))
    assert all(Prior(9.0, 3.0).moderated(contrast) is contrast for contrast in (five, one))


def test_few_contrasts_say_nothing_and_none_without_spread_counts():
    contrasts = family(np.random.default_rng(1), moderation.ENOUGH, 3, 4)
    assert fitted(contrasts)
    assert fitted(contrasts[1:]) is None
    same, single = Contrast(np.full(3, 0.1)), Contrast(np.array([0.1]))
    assert fitted([*contrasts[1:], same, single]) is None
    assert fitted([*contrasts, same, single]) == fitted(contrasts)


def errs(df, shared, bound, trials=600, count=12):
    """Share of families of null contrasts with 3 seeds in which one is called an effect."""
    generator, hits = np.random.default_rng(2), 0
    for _ in range(trials):
        contrasts = family(generator, count, 3, df, shared=shared)
        prior = replace(fitted(contrasts), **({} if bound else {"df": 30.0}))
        hits += min(benjamini_hochberg([prior.moderated(contrast).p(0.0) for contrast in contrasts])) < 0.05
    return hits / trials


@pytest.mark.slow
@pytest.mark.parametrize("df", [None, 4, 2])
@pytest.mark.parametrize("shared", [0.0, 0.03])
def test_families_of_nulls_err_no_more_often_than_they_may(df, shared):
    assert errs(df, shared, True) <= stats.binom.ppf(0.999, 600, 0.05) / 600


@pytest.mark.slow
def test_without_the_bound_they_would():
    assert errs(4, 0.0, False) > 0.09
