"""Intervals and p of paired and unpaired differences and of shares, against other libraries and by simulation."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from stemrepro.verdicts.contrast import Contrast, logits_of, of_shares, share_interval, unpaired


def test_interval_and_p_agree_with_scipy_and_statsmodels():
    values = np.random.default_rng(0).normal(0.03, 0.02, 7)
    contrast = Contrast(values)
    assert contrast.interval(0.05) == pytest.approx(DescrStatsW(values).tconfint_mean(0.05))
    assert contrast.interval(0.10) == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval(0.90))
    assert contrast.p(0.0) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert contrast.p(0.05) == pytest.approx(stats.ttest_1samp(values, 0.05).pvalue)
    assert (contrast.p_above(0.05), contrast.p_below(0.0)) == (1.0, 1.0)


def test_what_lies_inside_and_outside_is_told_by_two_one_sided_tests():
    contrast = Contrast(np.random.default_rng(1).normal(0.004, 0.02, 8))
    above, below = (stats.ttest_1samp(contrast.differences, at, alternative=side).pvalue
                    for at, side in ((-0.03, "greater"), (0.03, "less")))  # fmt: skip
    assert contrast.p_inside(0.03) == pytest.approx(2 * max(above, below))
    far = Contrast(contrast.differences - 0.05)
    assert far.p_outside(0.03) == pytest.approx(
        2 * stats.ttest_1samp(far.differences, -0.03, alternative="less").pvalue
    )


@pytest.mark.parametrize("value", [-0.05, 0.0, 0.01, 0.05])
def test_a_p_below_5_percent_is_a_value_outside_the_95_percent_interval(value):
    generator = np.random.default_rng(2)
    for _ in range(50):
        plain = Contrast(generator.normal(0.01, 0.03, 5))
        shares = of_shares(*(100 * generator.beta(8, 2, 5) for _ in range(2)), 40)
        for contrast, at in ((plain, value), (shares, 100 * value)):
            low, high = contrast.interval(0.05)
            assert (contrast.p(at) < 0.05) == (not low <= at <= high)
            inside = -abs(at) < low and high < abs(at)
            assert (contrast.p_inside(abs(at)) < 0.05) == inside


def test_item_error_widens_the_interval_and_satterthwaite_bounds_its_df():
    values = np.array([0.03, 0.04, 0.05, 0.035, 0.045])
    seeds, both = Contrast(values), Contrast(values, item_se=0.01, item_df=19)
    assert both.error[0] == pytest.approx(np.hypot(seeds.seed_se, 0.01))
    assert 4 < both.error[1] < 4 + 19
    assert both.interval(0.05)[0] < seeds.interval(0.05)[0]


def test_equal_item_and_seed_errors_give_the_welch_df():
    values = np.random.default_rng(1).normal(size=(2, 8))
    values[1] = values[1] - values[1].mean()
    first, second = values
    welch = stats.ttest_ind(first, second, equal_var=False)
    assert Contrast(first, float(stats.sem(second)), 7).error[1] == pytest.approx(welch.df)


def test_arms_that_are_not_paired_are_compared_as_welch_does():
    generator = np.random.default_rng(3)
    first, second = generator.normal(1, 0.1, 6), generator.normal(0.8, 0.4, 6)
    contrast = unpaired(first, second)
    assert contrast.mean == pytest.approx(first.mean() - second.mean())
    assert contrast.p(0.0) == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)
    expected = CompareMeans(DescrStatsW(first), DescrStatsW(second)).tconfint_diff(0.05, usevar="unequal")
    assert contrast.interval(0.05) == pytest.approx(expected)
    assert unpaired(first, np.append(second, 9.0)).mean == contrast.mean  # over the seeds that both have


def test_logits_have_half_an_item_on_both_sides():
    values, step = logits_of(np.array([0.0, 50.0, 100.0, -3.0]), 10)
    assert values == pytest.approx([np.log(0.5 / 10.5), 0.0, np.log(10.5 / 0.5), np.log(0.5 / 10.5)])
    moved = np.log(9 + 0.5) - np.log(1 + 0.5) - (np.log(8 + 0.5) - np.log(2 + 0.5))  # one item, at 8.5 of 10
    assert logits_of(np.array([85.0]), 10)[1][0] == pytest.approx(moved, rel=0.05)
    assert step[0] == pytest.approx(1 / 0.5 + 1 / 10.5)


def test_a_share_is_tested_on_logits_and_shown_in_points():
    first, second = np.array([90.0, 94.0, 97.0, 92.0]), np.array([80.0, 83.0, 85.0, 79.0])
    contrast = of_shares(first, second, 1e9)  # so many items that half of one is nothing
    high, low = logit(first / 100), logit(second / 100)
    assert contrast.p(0.0) == pytest.approx(stats.ttest_rel(high, low).pvalue, rel=1e-6)
    assert contrast.mean == pytest.approx(100 * (expit(high.mean()) - expit(low.mean())))
    ends, middle = stats.ttest_rel(high, low).confidence_interval(0.95), (high.mean() + low.mean()) / 2
    shown = [100 * (expit(middle + end / 2) - expit(middle - end / 2)) for end in ends]
    assert contrast.interval(0.05) == pytest.approx(shown)
    for value in (-60.0, -5.0, 0.0, 3.0, 80.0):
        assert contrast.shown(contrast.hidden(value)) == pytest.approx(value)
    assert contrast.differences == pytest.approx(first - second)
    assert contrast.reversed().interval(0.05) == pytest.approx([-end for end in reversed(shown)])


def test_the_errors_of_a_share_are_in_points_and_both_count_on_logits():
    generator = np.random.default_rng(4)
    first, second = (100 * generator.normal(p, 0.004, 6) for p in (0.7, 0.6))
    plain, contrast = Contrast(first - second), of_shares(first, second, 1e9, item_se=1.5, item_df=30)
    assert contrast.seed_se == pytest.approx(plain.seed_se, rel=0.1)
    assert contrast.error[0] * contrast.slope == pytest.approx(np.hypot(contrast.seed_se, 1.5))


@pytest.mark.parametrize("pair", [(100.0, 0.0), (0.0, 100.0), (100.0, 100.0), (99.0, 40.0)])
def test_no_interval_of_a_share_leaves_the_scale(pair):
    generator = np.random.default_rng(5)
    for seeds in (2, 3, 5):
        first, second = (np.clip(generator.normal(mean, 40, seeds), 0, 100) for mean in pair)
        low, high = of_shares(first, second, 20, paired=False).interval(0.001)
        assert -100 <= low <= high <= 100
        low, high = share_interval(first, 20)
        assert 0 <= low <= high <= 100


def test_seeds_that_agree_to_the_item_are_still_known_to_one_item_alone():
    contrast = of_shares(np.full(3, 98.0), np.full(3, 97.0), 100)
    assert contrast.seed_se > 0
    assert contrast.p(0.0) > 0.05


def test_a_share_of_one_seed_or_without_a_value_has_no_interval():
    assert np.isnan(of_shares(np.array([50.0]), np.array([40.0]), 10).interval(0.05)).all()
    assert np.isnan(of_shares(np.array([50.0, np.nan, 60.0]), np.array([40.0, 30.0, 20.0]), 10).mean)


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("share", "spread", "items"), [
    (0.5, 0.05, 50), (0.9, 0.3, 200), (0.97, 0.5, 100), (0.8, 1.5, 1000), (0.03, 0.3, 500),
])  # fmt: skip
@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_shares_are_told_apart_in_one_case_of_twenty_at_most(paired, share, spread, items, seeds):
    """Of binomial counts whose logits vary over seeds, with a part that both arms share where they are paired."""
    generator, trials, hits = np.random.default_rng(6), 1000, 0
    for _ in range(trials):
        common = generator.normal(0, spread, seeds) if paired else np.zeros(seeds)
        logits = logit(share) + common + generator.normal(0, spread, (2, seeds))
        first, second = 100 * generator.binomial(items, expit(logits)) / items
        hits += of_shares(first, second, items, paired=paired).p(0.0) < 0.05
    assert hits <= stats.binom.ppf(0.999, trials, 0.05)
