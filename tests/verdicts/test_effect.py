"""Intervals of paired and unpaired differences and of shares, against other libraries and by simulation."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from stemrepro.verdicts.effect import Effect, combined, logits_of, of_share, of_shares, unpaired


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_the_interval_is_scipys_and_no_error_between_items_enters(level):
    values = np.random.default_rng(0).normal(0.03, 0.02, 7)
    expected = stats.t.interval(level, 6, values.mean(), stats.sem(values))
    assert Effect(values).interval(1 - level) == pytest.approx(expected)
    assert Effect(values, item_se=9.0).interval(1 - level) == pytest.approx(expected)
    assert np.isnan(Effect(values[:1]).interval(1 - level)).all()


def test_arms_that_are_not_paired_are_compared_as_welch_does():
    generator = np.random.default_rng(3)
    first, second = generator.normal(1, 0.1, 6), generator.normal(0.8, 0.4, 6)
    effect, welch = unpaired(first, second), stats.ttest_ind(first, second, equal_var=False)
    assert effect.mean == pytest.approx(first.mean() - second.mean())
    assert effect.interval(0.01) == pytest.approx(welch.confidence_interval(0.99))
    assert effect.interval(0.01) != pytest.approx(Effect(first - second).interval(0.01), rel=0.01)
    assert unpaired(first, np.append(second, 9.0)).mean == effect.mean  # over the seeds that both have


def test_a_sum_of_samples_has_their_weighted_variances():
    samples = np.random.default_rng(1).normal(0, [[0.1], [0.2], [0.4]], (3, 5))
    effect = combined((1, -2, 0.5), samples)
    variances = np.array([1, 4, 0.25]) * samples.var(axis=1, ddof=1) / 5
    df = variances.sum() ** 2 / (variances**2 / 4).sum()
    mean = np.dot((1, -2, 0.5), samples.mean(axis=1))
    assert effect.interval(0.05) == pytest.approx(stats.t.interval(0.95, df, mean, np.sqrt(variances.sum())))
    assert np.isnan(combined((1, -1), samples[:2, :1]).interval(0.05)).all()


def test_logits_have_half_an_item_on_both_sides():
    values, step = logits_of(np.array([0.0, 50.0, 100.0, -3.0]), 10)
    assert values == pytest.approx([np.log(0.5 / 10.5), 0.0, np.log(10.5 / 0.5), np.log(0.5 / 10.5)])
    moved = np.log(9 + 0.5) - np.log(1 + 0.5) - (np.log(8 + 0.5) - np.log(2 + 0.5))  # one item, at 8.5 of 10
    assert logits_of(np.array([85.0]), 10)[1][0] == pytest.approx(moved, rel=0.05)
    assert step[0] == pytest.approx(1 / 0.5 + 1 / 10.5)


@pytest.mark.parametrize("paired", [True, False])
def test_a_share_is_the_plain_mean_with_an_interval_on_logits(paired):
    first, second = np.array([90.0, 94.0, 97.0, 92.0]), np.array([80.0, 83.0, 85.0, 79.0])
    effect = of_shares(first, second, 1e9, paired=paired)  # so many items that half of one is nothing
    high, low = logit(first / 100), logit(second / 100)
    test = stats.ttest_rel(high, low) if paired else stats.ttest_ind(high, low, equal_var=False)
    shown = [100 * np.mean(expit(low + end) - expit(low)) for end in test.confidence_interval(0.99)]
    assert effect.interval(0.01) == pytest.approx(shown)
    assert effect.mean == pytest.approx(np.mean(first - second))
    turned = of_shares(second, first, 1e9, paired=paired)
    assert turned.mean == -effect.mean
    assert turned.interval(0.2)[1] < 0 < effect.interval(0.2)[0]


@pytest.mark.parametrize("pair", [(100.0, 0.0), (0.0, 100.0), (100.0, 100.0), (99.0, 40.0)])
def test_no_interval_of_a_share_leaves_the_scale(pair):
    generator = np.random.default_rng(5)
    for seeds in (2, 3, 5):
        first, second = (np.clip(generator.normal(mean, 40, seeds), 0, 100) for mean in pair)
        low, high = of_shares(first, second, 20, paired=False).interval(0.001)
        other = 100 * expit(logits_of(second, 20)[0]).mean()
        assert -other <= low <= high <= 100 - other  # added to the other arm it stays a share
        low, high = of_share(first, 20).interval(0.05)
        assert 0 <= low <= high <= 100


def test_the_interval_of_one_share_is_that_of_its_logits():
    percent = np.array([80.0, 83.0, 88.0, 79.0])
    ends = stats.t.interval(0.95, 3, logit(percent / 100).mean(), stats.sem(logit(percent / 100)))
    assert of_share(percent, 1e9).mean == pytest.approx(82.5)
    assert of_share(percent, 1e9).interval(0.05) == pytest.approx([*(100 * expit(np.array(ends)))])


def test_seeds_that_agree_to_the_item_are_still_known_to_one_item_alone():
    """By hand: of 100 items one moves the logit of k by 1 / (k + 1/2) + 1 / (100 - k + 1/2)."""
    effect = of_shares(np.full(3, 98.0), np.full(3, 97.0), 100)
    low, high = effect.interval(0.05)
    assert low < 0 < high
    steps = [1 / (right + 0.5) + 1 / (100.5 - right) for right in (98, 97)]
    assert effect.seed_variance[0] == pytest.approx(sum(step**2 for step in steps) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("share", "spread", "items"),
    [(0.5, 0.05, 50), (0.9, 0.3, 200), (0.97, 0.5, 100), (0.8, 1.5, 1000), (0.03, 0.3, 500)],
)
@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_shares_are_told_apart_in_one_case_of_twenty_at_most(paired, share, spread, items, seeds):
    """Of binomial counts whose logits vary over seeds, with a part that both arms share where they are paired."""
    generator, trials, hits = np.random.default_rng(6), 1000, 0
    for _ in range(trials):
        common = generator.normal(0, spread, seeds) if paired else np.zeros(seeds)
        logits = logit(share) + common + generator.normal(0, spread, (2, seeds))
        first, second = 100 * generator.binomial(items, expit(logits)) / items
        low, high = of_shares(first, second, items, paired=paired).interval(0.05)
        hits += low > 0 or high < 0
    assert hits <= stats.binom.ppf(0.999, trials, 0.05)
