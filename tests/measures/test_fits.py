import numpy as np
import pytest

from stemrepro.measures.fits import HIGHEST, LOWEST, bootstrapped, fit

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
