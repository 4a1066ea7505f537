import numpy as np
import pytest
from stemrepro.report.roi import flops_to, loss_at

FLOPS, LOSS = np.log([1.0, 2.0, 4.0, 8.0]), np.array([4.0, 3.0, 2.5, 2.4])


def test_loss_between_marks_is_on_the_line():
    assert loss_at(FLOPS, LOSS, np.log(2.0)) == pytest.approx(3.0)
    assert loss_at(FLOPS, LOSS, np.log(2 * np.sqrt(2))) == pytest.approx(2.75)


def test_flops_to_a_loss():
    assert np.exp(flops_to(FLOPS, LOSS, 2.75)) == pytest.approx(2 * np.sqrt(2))
    assert np.exp(flops_to(FLOPS, LOSS, 3.0)) == pytest.approx(2.0)
    assert flops_to(FLOPS, LOSS, 5.0) == FLOPS[0]
    assert np.isnan(flops_to(FLOPS, LOSS, 2.0))


def test_the_first_passage_counts():
    assert np.exp(flops_to(FLOPS, np.array([4.0, 2.0, 3.0, 1.0]), 2.0)) == pytest.approx(2.0)
