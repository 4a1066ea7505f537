"""Contrasts of angles against numbers put in by hand."""

import numpy as np
import pytest
from scipy import stats

from stemrepro.measures import geometry
from stemrepro.measures.geometry import correlation_within, excess, gain, p95, partial_rank_correlation, random_p95
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Untested
from tests.made_up import grid, write_scores

SEEDS, VOCAB = 3, 200
TARGETS = np.where(np.arange(VOCAB) < 50, 10, 100 + 37 * np.arange(VOCAB) % 400)


def write(folder, name, layers, kinds, shift=0.0, spread=None, nats=None, rare="1-31", targets=TARGETS):
    """An arm with p95 = seed / 100 + layer / 20 + share / 1000 + shift, 0.1 more of frequent rows; centred twice that.

    Args:
        rare: name of the bucket of rare tokens.
    """
    axes = {"share": (0.0, 0.5, 1.0), "layer": layers, "what": kinds, "bucket": ("all", rare, "256-2047")}
    every = grid(seed=range(SEEDS), **axes, centred=(False, True))
    cosines = every[(every["what"] == "rows") | ((every["share"] == 1) & (every["bucket"] == "all"))]
    value = cosines["seed"] / 100 + cosines["layer"] / 20 + cosines["share"] / 1000 + shift
    value += 0.1 * (cosines["bucket"] == "256-2047")
    cosines = cosines.assign(p95=value * (1 + cosines["centred"]), mean=0.0, mode=-value, peak=1.0, vectors=9)
    tables, tokens = {"cosines": cosines}, grid(seed=range(SEEDS), token=range(VOCAB))
    if spread is not None:
        tables["spread"] = tokens.assign(spread=spread.ravel())
    write_scores(folder, "geometry", name, SEEDS, tables, width=16, ffn_width=44, layers=layers)
    told = np.tile(targets, SEEDS)
    tokens = tokens.assign(tokens=told, nats=np.ravel(nats), seen=np.tile(np.arange(VOCAB), SEEDS))
    write_scores(folder, "losses", name, SEEDS, {"tokens": tokens})


RNG = np.random.default_rng(0)
SPREAD, NATS = RNG.uniform(0.05, 0.15, (SEEDS, VOCAB)), RNG.uniform(300, 400, (SEEDS, VOCAB))


def angles(catalog, folder, **more):
    write(folder, "dense", [1, 2, 3], ["up", "gated"], 0.3, nats=NATS, **more)
    write(folder, "stem-third", [1, 3], ["rows", "up", "gated"], 0.0, SPREAD, NATS + 5 * TARGETS * SPREAD, **more)
    return Scores("angular_spread", catalog, "laptop", folder)


@pytest.fixture
def scores(catalog, tmp_path):
    return angles(catalog, tmp_path)


def test_statistics_are_means_over_the_layers_that_both_arms_have(scores):
    seeds = np.arange(SEEDS) / 100 + 0.1 + 0.001
    assert p95(scores, "dense", "stem-third", "up").differences == pytest.approx(0.3)
    assert p95(scores, "dense", "stem-third", "up", centred=True).differences == pytest.approx(0.6)
    assert geometry.mode(scores, "dense", "stem-third", "up").differences == pytest.approx(-0.3)
    over = (seeds + 0.3) / random_p95(16) - seeds / random_p95(44)
    assert excess(scores, "dense", "stem-third", "up").differences == pytest.approx(over)


def test_what_the_rows_of_one_arm_show(scores):
    pair, seeds = ("stem-third", "stem-third"), np.arange(SEEDS) / 100 + 0.1 + 0.001
    assert geometry.floor(scores, *pair).differences == pytest.approx(seeds / random_p95(44) - 1)
    assert geometry.learnt(scores, *pair).differences == pytest.approx(-0.001)
    assert geometry.depth(scores, *pair).differences == pytest.approx(0.1)
    assert geometry.frequency(scores, *pair).differences == pytest.approx(0.1)


def test_gain_is_correlated_with_spread(scores):
    """The made-up losses rise with closeness alone, so the correlation with spread is nearly 1."""
    kept, gains, _, seen = geometry.token_gains(
        *(geometry.arm_geometry(scores, arm) for arm in ("dense", "stem-third"))
    )
    assert list(kept) == list(range(50, VOCAB))
    assert gains.shape == seen.shape == (SEEDS, VOCAB - 50)
    assert gain(scores, "dense", "stem-third").mean > 0.99


def test_partial_rank_correlation():
    rng = np.random.default_rng(1)
    z = rng.normal(size=5000)
    x, y = z + rng.normal(size=5000), z + rng.normal(size=5000)
    assert stats.spearmanr(x, y).statistic > 0.4
    assert partial_rank_correlation(x, y, z) == pytest.approx(0, abs=0.05)
    assert partial_rank_correlation(x, x**3, z) == pytest.approx(1)
    bent = z**2
    x, y = bent + rng.normal(size=5000), bent + rng.normal(size=5000)
    assert partial_rank_correlation(x, y, z) > 0.4  # no straight line takes a parabola out, classes do
    assert correlation_within(x, y, z, 50) == pytest.approx(0, abs=0.06)
    assert correlation_within(x, x**3, z, 50) == pytest.approx(1)


def test_what_a_text_is_too_small_for(catalog, tmp_path):
    scores = angles(catalog, tmp_path, rare="0", targets=np.full(VOCAB, 5))
    with pytest.raises(Untested, match="too few tokens are frequent"):
        geometry.frequency(scores, "stem-third", "stem-third")
    with pytest.raises(Untested, match="0 tokens have 30 scored targets; 30 are needed"):
        gain(scores, "dense", "stem-third")
