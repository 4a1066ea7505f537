"""Metrics of the retrofit, on made-up losses."""

import pytest

from stemrepro.measures.inputs import Inputs
from stemrepro.measures.retrofit import Retrofit
from tests.made_up import write_arm

PROSE = {("second-half", "dense"): (3.90, 4.00), ("second-half-mean-row", "stem-frozen"): (3.86, 3.94)}


@pytest.fixture
def measure(catalog, tmp_path):
    for (variant, arm), prose in PROSE.items():
        write_arm(tmp_path / "losses" / variant / arm, prose, seeds=(0, 1))
    return Retrofit(Inputs("retrofit", catalog, "laptop", tmp_path))


def test_a_constant_row_that_gains_too_makes_gains_untestable(measure):
    """It ends 0.04 and 0.06 below dense."""
    assert measure.untestable("gain:token-means", "no-gain-without-information", 0.02) is None  # of two seeds
    reason = measure.untestable("gain:token-means", "no-gain-without-information", -0.08)
    assert "ends -0.077 to 0.177 nats (95%) below dense in two stages, more than the -0.08 that count" in reason
    assert measure.untestable("behind:scratch", "none", 0.02) is None
