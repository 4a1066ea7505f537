"""Leads along the two lines of recipes/size_ladder.yaml, from made-up losses, and their law over sizes.

The law is compared with least squares that have the prior as one more row, and with its coverage.
"""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.sizes import (
    CURVATURE,
    derivative,
    fall,
    fit,
    forecast,
    lead,
    lost,
    predicted,
    sizes,
    table_rate,
)
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import made, write_arms

DENSE = 4.0
PAIR = ("dense", "stem-full")


def percent(width, vocab):
    """The lead in %: it falls by a fifth a doubling of the width and grows by a quarter a doubling of the rows."""
    return 6 * 0.8 ** np.log2(width) * 1.25 ** np.log2(vocab)


@pytest.fixture
def build(catalog, tmp_path):
    """Scores of dense and STEM full, whose lead is a function of width, vocabulary and table rate."""

    def build(lead):
        scores, arms = made(catalog, "size_ladder", tmp_path), {}
        for arm in PAIR:
            for variant in ("main", *scores.recipe.variants_of(arm)):
                at = catalog.variant(variant)
                share = 0 if arm == "dense" else lead(at.width, at.vocab, at.table_rate)
                arms[f"{arm}@{variant}"] = {"prose": [(DENSE + 0.01 * seed) * (1 - share / 100) for seed in range(5)]}
        write_arms(tmp_path, arms)
        return scores

    return build


def test_both_lines_hold_the_scale_and_rise_in_width(catalog, tmp_path):
    scores = made(catalog, "size_ladder", tmp_path)
    for line, vocab in (("fixed", lambda width: 1), ("grown", lambda width: width)):
        models = sizes(scores, line)
        assert [size.width for size in models] == [0.5, 0.75, 1, 1.5, 2][: 5 if line == "fixed" else 4]
        assert all(size.vocab == vocab(size.width) for size in models)
        assert models[2].variant == "main"


def test_a_lead_is_relative_and_falls_by_its_slope(build):
    scores = build(lambda width, vocab, rate: percent(width, vocab))
    assert lead(scores, *PAIR).differences == pytest.approx([6] * 5)
    assert lead(scores, *PAIR, "width-64").differences == pytest.approx([4.8] * 5)
    less = lost(scores, *PAIR, "width-64")
    assert (less.differences.tolist(), less.paired) == (pytest.approx([1.2] * 5), False)
    assert fall(scores, *PAIR, "fixed").differences == pytest.approx([-np.log2(0.8)] * 5)
    assert fall(scores, *PAIR, "grown").differences == pytest.approx([0] * 5, abs=1e-9)


def test_a_fall_that_grows_bends(build):
    """By 0.1 a doubling, at either vocabulary."""
    scores = build(lambda width, vocab, rate: 6 * 2 ** (-0.05 * np.log2(width) ** 2))
    for line in ("fixed", "grown"):
        assert derivative(scores, PAIR, line, 2).differences == pytest.approx([0.1] * 5)
        with pytest.raises(Unmeasured, match=r"no straight line fits: the fall of stem-full's lead changes by \+0\.10"):
            fall(scores, *PAIR, line)
    wide = np.log2([1, 1.5, 2])
    expected = -np.polyfit(wide, -0.05 * wide**2, 1)[0]
    assert fall(scores, *PAIR, "fixed", wide=True).differences == pytest.approx([expected] * 5)


def test_no_lead_has_no_logarithm(build):
    scores = build(lambda width, vocab, rate: -1 if width == 2 else 6)
    with pytest.raises(Unmeasured, match="stem-full has no lead over dense at width-64 in every seed"):
        fall(scores, *PAIR, "fixed")


def test_a_forecast_knows_the_narrower_models_alone(build):
    """The widest lead is twice what the others foretell."""
    scores = build(lambda width, vocab, rate: percent(width, vocab) * (2 if width == 2 else 1 + 0.01 * (width == 1.5)))
    assert predicted(scores, *PAIR, "width-64").value == pytest.approx(percent(2, 1), rel=0.02)
    missed = forecast(scores, *PAIR, "width-64")
    assert missed.mean == pytest.approx(1, abs=0.03)
    assert not missed.paired
    with pytest.raises(UserError, match="size 'width-64-table-rate' is unknown"):
        forecast(scores, *PAIR, "width-64-table-rate")


def test_a_table_s_rate_is_compared_at_one_size(build):
    scores = build(lambda width, vocab, rate: percent(width, vocab) + (0.5 if rate != 1 else 0))
    assert table_rate(scores, *PAIR, "width-64-table-rate").differences == pytest.approx([0.5] * 5)
    with pytest.raises(UserError, match="'width-64' differs from no variant of size_ladder by its table_rate alone"):
        table_rate(scores, *PAIR, "width-64")


X = np.array([-1, -0.4, 0, 0.6, 1, 1.6, -1, -0.4, 0.6, 1, 1.6])
Z = np.array([0, 0, 0, 0, 0, 0, -1, -0.4, 0.6, 1, 1.6])
LINE = np.array([2.7, -0.35, 0.3, 0.0])


def leads_by(coefficients, noise, rng, seeds=4):
    """Leads of sizes [each its seeds] by a law with normal noise on log2."""
    middle = np.stack([np.ones_like(X), X, Z, X**2], axis=1) @ coefficients
    return [2 ** (value + noise * rng.standard_normal(seeds)) for value in middle]


def test_a_law_equals_least_squares_with_the_prior_as_a_row():
    leads = leads_by(LINE + np.array([0, 0, 0, 0.03]), 0.1, np.random.default_rng(0))
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
    assert law.log_leads(1, 0.5).mean() == pytest.approx(np.log2(law.lead(1, 0.5).value))


def test_a_lead_is_the_laws_and_its_interval_is_wider_where_no_model_was():
    law = fit(X, Z, leads_by(LINE, 0.01, np.random.default_rng(1)))
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
        told = fit(X, Z, leads_by(truth, 0.08, rng, seeds=3)).lead(x, z)
        hits += told.low < 2 ** (truth @ [1, x, z, x * x]) < told.high
    assert 0.93 < hits / draws < 0.985


def test_points_off_the_law_widen_the_interval():
    """Every other point is shifted by far more than its seeds differ."""
    rng = np.random.default_rng(3)
    quiet, shifted = leads_by(LINE, 0.02, rng), leads_by(LINE, 0.02, rng)
    for leads in shifted[::2]:
        leads *= 1.3
    first, second = (fit(X, Z, leads) for leads in (quiet, shifted))
    near, far = first.lead(4, 4), second.lead(4, 4)
    assert far.high / far.low > 1.2 * near.high / near.low
    assert second.variance > 5 * first.variance


@pytest.mark.parametrize(
    ("rows", "change", "words"),
    [(slice(3), 1, "four of them"), (slice(6), 1, "two vocabularies at one width"), (slice(9), -1, "leads above 0")],
)
def test_what_gives_no_law_is_one_sentence(rows, change, words):
    leads = [change * values for values in leads_by(LINE, 0.01, np.random.default_rng(4))[rows]]
    with pytest.raises(UserError, match=words):
        fit(X[rows], Z[rows], leads)
