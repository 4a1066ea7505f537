import numpy as np
import pytest

from stemrepro.errors import UserError
from stemrepro.measures.forecast import forecast

TOKENS = np.array([0.33e6, 1.2e6, 4.9e6, 19e6, 39e6])


def dense(tokens):
    return 2.1 + 1.3 * (tokens / 1e6) ** -0.35


def stem(tokens):
    return 2.0 + 1.2 * (tokens / 1e6) ** -0.33


def ladder(law, seeds, rng, noise, rungs, luck):
    return law(TOKENS[:rungs])[:, None] + luck + rng.normal(0, noise, (rungs, seeds))


@pytest.mark.parametrize("rungs", [3, 4])
def test_laws_without_noise_are_drawn_on_exactly(rungs):
    rng, luck = np.random.default_rng(0), np.zeros(3)
    arms = tuple(ladder(law, 3, rng, 0.0, rungs, luck) for law in (dense, stem))
    at = TOKENS[rungs]
    assert forecast(TOKENS[:rungs], arms[:1], (1,), at).mean == pytest.approx(dense(at), abs=1e-4)
    gap = forecast(TOKENS[:rungs], arms, (1, -1), at)
    assert gap.mean == pytest.approx(dense(at) - stem(at), abs=1e-4)
    assert forecast(TOKENS[:rungs], arms, (-1, 1), at).mean == pytest.approx(-gap.mean)


@pytest.mark.parametrize(("seeds", "rungs", "trials"), [(3, 3, 150), (5, 3, 150), (3, 4, 12)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(seeds, rungs, trials):
    """95%, within what so many trials can tell; with more rungs than parameters it is wider, because of two errors that overlap."""
    rng, hits = np.random.default_rng(1), 0
    truth = dense(TOKENS[rungs]) - stem(TOKENS[rungs])
    for _ in range(trials):
        luck = rng.normal(0, 0.01, seeds)
        arms = tuple(ladder(law, seeds, rng, 0.004, rungs, luck) for law in (dense, stem))
        low, high = forecast(TOKENS[:rungs], arms, (1, -1), TOKENS[rungs]).interval(0.05)
        hits += low < truth < high
    assert hits >= 0.9 * trials
    assert trials < 100 or hits < trials


def test_a_law_that_does_not_fit_widens_the_interval():
    """Seeds that agree to the last digit about a ladder with a bend in it know little of the next rung."""
    bent = dense(TOKENS[:4])[:, None] + np.array([0.0, 0.05, -0.05, 0.02])[:, None] + np.zeros(3)
    low, high = forecast(TOKENS[:4], (bent,), (1,), TOKENS[4]).interval(0.05)
    assert high - low > 0.05
    straight = dense(TOKENS[:4])[:, None] + np.zeros(3)
    low, high = forecast(TOKENS[:4], (straight,), (1,), TOKENS[4]).interval(0.05)
    assert high - low < 0.001


def test_a_prediction_needs_rungs_below_it():
    with pytest.raises(UserError, match="3 rungs below the next one; there are 2"):
        forecast(TOKENS[:2], (np.ones((2, 3)),), (1,), TOKENS[2])
    with pytest.raises(UserError, match="above those fitted"):
        forecast(TOKENS[:3], (np.ones((3, 3)),), (1,), TOKENS[2])
