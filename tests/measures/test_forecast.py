import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.forecast import Below, forecast

TOKENS = np.array([0.33e6, 1.2e6, 4.9e6, 19e6, 39e6])


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch):
    """Enough for a standard error to a tenth."""
    monkeypatch.setattr("stemrepro.measures.forecast.DRAWS", 50)


def dense(tokens):
    return 2.1 + 1.3 * (tokens / 1e6) ** -0.35


def stem(tokens):
    return 2.0 + 1.2 * (tokens / 1e6) ** -0.33


def below(losses, rungs, at=None):
    """The first rungs; the next one is to be predicted."""
    return Below(losses, (TOKENS[:rungs],), (TOKENS[rungs] if at is None else at,))


def ladder(law, seeds, rng, noise, rungs, luck):
    return law(TOKENS[:rungs])[:, None] + luck + rng.normal(0, noise, (rungs, seeds))


@pytest.mark.parametrize("rungs", [3, 4])
def test_laws_without_noise_are_extrapolated_exactly(rungs):
    rng, luck = np.random.default_rng(0), np.zeros(3)
    arms = tuple(below(ladder(law, 3, rng, 0.0, rungs, luck), rungs) for law in (dense, stem))
    at = TOKENS[rungs]
    assert forecast(arms[:1], (1,)).mean == pytest.approx(dense(at), abs=1e-4)
    gap = forecast(arms, (1, -1))
    assert gap.mean == pytest.approx(dense(at) - stem(at), abs=1e-4)
    assert forecast(arms, (-1, 1)).mean == pytest.approx(-gap.mean)


@pytest.mark.parametrize("size", [0.4e6, 0.7e6])
def test_a_law_over_parameters_and_tokens_is_extrapolated_exactly(size):
    """Five places of two sizes; the larger one's next rung has as many tokens as the smaller one's last."""

    def loss(parameters, tokens):
        return 1.6 + 0.5 * (parameters / 1e5) ** -0.35 + 1.3 * (tokens / 1e6) ** -0.35

    sizes, tokens = np.array([1e5, 1e5, 1e5, size, size]), np.array([*TOKENS[:3], *TOKENS[:2]])
    losses = loss(sizes, tokens)[:, None] + np.zeros(3)
    contrast = forecast((Below(losses, (sizes, tokens), (size, TOKENS[2]), tied=True),), (1,))
    assert contrast.mean == pytest.approx(loss(size, TOKENS[2]), abs=1e-4)
    with pytest.raises(UserError, match=r"above those fitted, up to 1.2e[+]06 tokens"):
        forecast((Below(losses, (sizes, tokens), (size, TOKENS[1]), tied=True),), (1,))
    with pytest.raises(UserError, match="needs 4 rungs below the next one; there are 3"):
        forecast((Below(losses[:3], (sizes[:3], tokens[:3]), (size, TOKENS[2]), tied=True),), (1,))


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "rungs", "trials"), [(3, 3, 60), (5, 3, 60), (3, 4, 12)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(seeds, rungs, trials):
    """95%, as far as so many trials can tell; with more rungs than parameters two errors overlap, and it is wider."""
    rng, hits = np.random.default_rng(1), 0
    truth = dense(TOKENS[rungs]) - stem(TOKENS[rungs])
    for _ in range(trials):
        luck = rng.normal(0, 0.01, seeds)
        arms = tuple(below(ladder(law, seeds, rng, 0.004, rungs, luck), rungs) for law in (dense, stem))
        low, high = forecast(arms, (1, -1)).interval(0.05)
        hits += low < truth < high
    assert hits >= 0.9 * trials
    assert trials < 60 or hits < trials


def test_a_law_that_does_not_fit_widens_the_interval():
    """Seeds that agree to the last digit about a ladder with a bend in it know little of the next rung.

    The bootstrap's error is compared with that of the law's linear approximation.
    """
    bent = dense(TOKENS[:4]) + np.array([0.0, 0.05, -0.05, 0.02])
    arm = below(bent[:, None] + np.zeros(3), 4)
    fitted = arm.law(bent).loss(*arm.sizes)
    slopes = [(arm.extrapolated(fitted + step) - arm.extrapolated(fitted - step)) / 2e-4 for step in 1e-4 * np.eye(4)]
    miss = 2 * np.sqrt(np.mean((bent - fitted) ** 2))  # four rungs, of which three parameters leave one
    contrast = forecast((arm,), (1,))
    variance, df = contrast.seed_variance
    assert np.sqrt(variance / 3) == pytest.approx(miss * np.hypot(1, np.linalg.norm(slopes)), rel=0.25)
    assert df == pytest.approx(1)
    straight = dense(TOKENS[:4])[:, None] + np.zeros(3)
    low, high = forecast((below(straight, 4),), (1,)).interval(0.05)
    assert high - low < 0.001
