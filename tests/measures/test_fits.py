import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.fits import HIGHEST, LOWEST, Below, bootstrapped, fit, forecast

TOKENS = np.array([0.33e6, 1.2e6, 4.9e6, 19e6, 39e6])
PARAMETERS = np.array([0.135e6] * 5 + [0.4e6] * 3)
BOTH = np.concatenate([TOKENS, TOKENS[:3] * 3])


@pytest.mark.parametrize("floor", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("amplitude", [0.1, 1.2])
@pytest.mark.parametrize("exponent", [0.05, 0.3, 0.9])
def test_a_law_is_recovered(floor, amplitude, exponent):
    """Also in its values far beyond the places, which a wrong floor or exponent would miss."""
    law = fit(floor + amplitude * (TOKENS / 1e6) ** -exponent, TOKENS)
    assert law.floor == pytest.approx(floor, abs=2e-4)
    assert law.exponents[0] == pytest.approx(exponent, rel=1e-3)
    assert law.loss(1e9) == pytest.approx(floor + amplitude * 1000**-exponent, abs=1e-4)


def test_a_law_over_two_sizes_with_one_exponent_and_with_two():
    def losses(parameters, tokens, exponent):
        return 1.5 + 0.4 * (parameters / 1e5) ** -exponent + 1.1 * (tokens / 1e6) ** -0.35

    law = fit(losses(PARAMETERS, BOTH, 0.35), PARAMETERS, BOTH, tied=True)
    assert (law.floor, *law.exponents) == pytest.approx((1.5, 0.35, 0.35), abs=1e-4)
    sizes, tokens = np.repeat([1e5, 3e5, 9e5], 4), np.tile(TOKENS[:4], 3)
    law = fit(losses(sizes, tokens, 0.6), sizes, tokens)
    assert (law.floor, *law.exponents) == pytest.approx((1.5, 0.6, 0.35), abs=1e-3)


def test_reach_is_the_inverse_of_loss_along_either_axis():
    law = fit(1.5 + 0.4 * (PARAMETERS / 1e5) ** -0.35 + 1.1 * (BOTH / 1e6) ** -0.35, PARAMETERS, BOTH, tied=True)
    target = float(law.loss(2.7e5, 5e6))
    assert law.reach(target, None, 5e6) == pytest.approx(2.7e5)
    assert law.reach(target, 2.7e5, None) == pytest.approx(5e6)


def test_a_loss_at_or_below_the_floor_is_never_reached():
    law = fit(2.0 + (TOKENS / 1e6) ** -0.4, TOKENS)
    assert np.isfinite(law.reach(2.01, None))
    assert law.reach(1.999, None) == np.inf
    assert fit(np.full(5, 3.0), TOKENS).reach(2.9, None) == np.inf


def test_the_floor_is_never_below_zero_and_exponents_stay_in_range():
    """Losses that fall ever faster have no floor; losses that fall at once and then stay have the steepest law."""
    law = fit(np.array([5.0, 4.9, 4.7, 4.2, 3.2]), TOKENS)
    assert law.floor >= 0
    assert LOWEST * 0.999 <= law.exponents[0] <= HIGHEST * 1.001
    assert fit(np.array([5.0, 2.0, 2.0, 2.0, 2.0]), TOKENS).exponents[0] <= HIGHEST * 1.001


def test_bootstrapped_numbers_hold_the_law_that_made_the_losses():
    """0.003 nats of noise per place and seed; the intervals of the seeds' means are some thousandths wide."""
    rng, tokens = np.random.default_rng(3), 1e5 * 4.0 ** np.arange(6)
    law = 2.0 + 1.5 * (tokens / 1e6) ** -0.4
    numbers = bootstrapped(law[:, None] + rng.normal(0, 0.003, (6, 3)), tokens)
    unit = np.exp(np.mean(np.log(tokens)))
    for name, true in (("floor", 2.0), ("exponent 0", 0.4), ("amplitude 0", 1.5 * (unit / 1e6) ** -0.4)):
        assert numbers[name].low - 0.01 < true < numbers[name].high + 0.01
        assert numbers[name].low <= numbers[name].value <= numbers[name].high
        assert numbers[name].high - numbers[name].low < 0.1


@pytest.fixture
def fewer_draws(monkeypatch):
    """Enough for a standard error to a tenth."""
    monkeypatch.setattr("stemrepro.measures.fits.DRAWS", 50)


def dense(tokens):
    return 2.1 + 1.3 * (tokens / 1e6) ** -0.35


def stem(tokens):
    return 2.0 + 1.2 * (tokens / 1e6) ** -0.33


def below(losses, rungs, at=None):
    """The first rungs; the next one is to be predicted."""
    return Below(losses, (TOKENS[:rungs],), (TOKENS[rungs] if at is None else at,))


def ladder(law, seeds, rng, noise, rungs, luck):
    return law(TOKENS[:rungs])[:, None] + luck + rng.normal(0, noise, (rungs, seeds))


@pytest.mark.usefixtures("fewer_draws")
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
@pytest.mark.usefixtures("fewer_draws")
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


@pytest.mark.usefixtures("fewer_draws")
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
