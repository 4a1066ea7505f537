import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.fits import HIGHEST, LOWEST, fit

TOKENS = np.array([0.33e6, 1.2e6, 4.9e6, 19e6, 39e6])


@pytest.mark.parametrize("floor", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("amplitude", [0.1, 1.2])
@pytest.mark.parametrize("exponent", [0.05, 0.3, 0.9])
def test_a_law_is_recovered(floor, amplitude, exponent):
    """Also in its values far beyond the places, which a wrong floor or exponent would miss."""
    law = fit(floor + amplitude * (TOKENS / 1e6) ** -exponent, TOKENS)
    assert law.floor == pytest.approx(floor, abs=2e-4)
    assert law.exponent == pytest.approx(exponent, rel=1e-3)
    assert law.loss(1e9) == pytest.approx(floor + amplitude * 1000**-exponent, abs=1e-4)


def test_reach_is_the_inverse_of_loss():
    law = fit(1.5 + 1.1 * (TOKENS / 1e6) ** -0.35, TOKENS)
    assert law.reach(float(law.loss(5e6))) == pytest.approx(5e6)


def test_a_law_needs_three_places():
    with pytest.raises(UserError, match="2 places can't tell them"):
        fit(np.array([3.0, 2.0]), TOKENS[:2])


def test_a_loss_at_or_below_the_floor_is_never_reached():
    law = fit(2.0 + (TOKENS / 1e6) ** -0.4, TOKENS)
    assert np.isfinite(law.reach(2.01))
    assert law.reach(1.999) == np.inf
    assert fit(np.full(5, 3.0), TOKENS).reach(2.9) == np.inf


def test_the_floor_is_never_below_zero_and_exponents_stay_in_range():
    """Losses that fall ever faster have no floor; losses that fall at once and then stay have the steepest law."""
    law = fit(np.array([5.0, 4.9, 4.7, 4.2, 3.2]), TOKENS)
    assert law.floor >= 0
    assert LOWEST * 0.999 <= law.exponent <= HIGHEST * 1.001
    assert fit(np.array([5.0, 2.0, 2.0, 2.0, 2.0]), TOKENS).exponent <= HIGHEST * 1.001
