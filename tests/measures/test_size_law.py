"""The law of a lead over sizes, against least squares with the prior as one more row, and its coverage."""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.size_law import CURVATURE, fit

X = np.array([-1, -0.4, 0, 0.6, 1, 1.6, -1, -0.4, 0.6, 1, 1.6])
Z = np.array([0, 0, 0, 0, 0, 0, -1, -0.4, 0.6, 1, 1.6])
LINE = np.array([2.7, -0.35, 0.3, 0.0])


def made(coefficients, noise, rng, seeds=4):
    """Leads of sizes [each its seeds] by a law with normal noise on log2."""
    middle = np.stack([np.ones_like(X), X, Z, X**2], axis=1) @ coefficients
    return [2 ** (value + noise * rng.standard_normal(seeds)) for value in middle]


def test_a_law_equals_least_squares_with_the_prior_as_a_row():
    leads = made(LINE + np.array([0, 0, 0, 0.03]), 0.1, np.random.default_rng(0))
    law = fit(X, Z, leads)
    logs = np.log2(leads)
    variance = law.variance
    assert variance >= logs.var(axis=1, ddof=1).mean() * (1 - 1e-9)
    rows = np.stack([np.ones_like(X), X, Z, X**2], axis=1) / np.sqrt(variance / 4)
    rows = np.vstack([rows, [0, 0, 0, 1 / CURVATURE]])
    target = np.append(logs.mean(axis=1) / np.sqrt(variance / 4), 0)
    assert law.coefficients == pytest.approx(np.linalg.lstsq(rows, target)[0], abs=1e-9)
    assert law.covariance == pytest.approx(np.linalg.inv(rows.T @ rows))
    assert law.by_seed.shape == (4, 4)
    assert law.by_seed.std(axis=1).min() > 0
    assert law.log_leads(1, 0.5).mean() == pytest.approx(law.log_lead(1, 0.5)[0])


def test_a_lead_is_the_laws_and_its_interval_is_wider_where_no_model_was():
    law = fit(X, Z, made(LINE, 0.01, np.random.default_rng(1)))
    near, far = law.lead(1, 0), law.lead(6, 7)
    assert near.value == pytest.approx(2 ** (LINE @ [1, 1, 0, 1]), rel=0.02)
    assert far.value == pytest.approx(2 ** (LINE @ [1, 6, 7, 36]), rel=1.0)
    assert np.log(far.high / far.low) > 10 * np.log(near.high / near.low)


@pytest.mark.slow
@pytest.mark.parametrize(("x", "z"), [(2.0, 0.0), (6.0, 7.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(x, z):
    """Curvature is drawn from the prior, so that the interval's share of it is what is checked too."""
    rng, hits, draws = np.random.default_rng(2), 0, 1000
    for _ in range(draws):
        truth = LINE + np.array([0, 0, 0, CURVATURE * rng.standard_normal()])
        told = fit(X, Z, made(truth, 0.08, rng, seeds=3)).lead(x, z)
        hits += told.low < 2 ** (truth @ [1, x, z, x * x]) < told.high
    assert 0.93 < hits / draws < 0.985


def test_points_off_the_law_widen_the_interval():
    """Every other point is shifted by far more than its seeds differ."""
    rng = np.random.default_rng(3)
    quiet, shifted = made(LINE, 0.02, rng), made(LINE, 0.02, rng)
    for leads in shifted[::2]:
        leads *= 1.3
    laws = [fit(X, Z, leads) for leads in (quiet, shifted)]
    ends = [law.lead(4, 4) for law in laws]
    assert ends[1].high / ends[1].low > 1.2 * ends[0].high / ends[0].low
    assert laws[1].variance > 5 * laws[0].variance


@pytest.mark.parametrize(
    ("rows", "change", "words"),
    [
        (slice(3), 1, "four of them; there are 3"),
        (slice(6), 1, "two vocabularies at one width"),
        (slice(None), -1, "needs leads above 0"),
    ],
)
def test_what_gives_no_law_is_one_sentence(rows, change, words):
    leads = [change * values for values in made(LINE, 0.01, np.random.default_rng(4))[rows]]
    with pytest.raises(UserError, match=words):
        fit(X[rows], Z[rows], leads)
