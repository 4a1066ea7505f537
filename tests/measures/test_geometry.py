"""Contrasts of angles against numbers put in by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.measures.geometry import (
    Angles,
    ArmGeometry,
    correlation_within,
    partial_rank_correlation,
    random_p95,
    token_gains,
)
from stemrepro.measures.inputs import Inputs
from tests.made_up import write_summary

SEEDS, VOCAB = 3, 200
TARGETS = np.where(np.arange(VOCAB) < 50, 10, 100 + 37 * np.arange(VOCAB) % 400)


def arm(scores, name, layers, kinds, shift=0.0, spread=None, nats=None):
    """Score files with p95 = seed / 100 + layer / 10 + share / 1000 + shift, twice that where centred."""
    folder, losses = scores / "geometry/main" / name, scores / "losses/main" / name
    folder.mkdir(parents=True)
    losses.mkdir(parents=True)
    rows = []
    for what in kinds:
        for seed in range(SEEDS):
            for share in (0.0, 0.5, 1.0) if what == "rows" else (1.0,):
                for layer in layers:
                    for bucket in ("all", "1-31", "256-2047") if what == "rows" else ("all",):
                        for centred in (False, True):
                            value = (
                                seed / 100 + layer / 10 + share / 1000 + shift + (0.5 if bucket == "256-2047" else 0)
                            )
                            rows.append(
                                (seed, share, layer, what, bucket, centred, value * (1 + centred), 0.0, -value, 1.0)
                            )
    columns = ["seed", "share", "layer", "what", "bucket", "centred", "p95", "mean", "mode", "peak"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "cosines.csv", index=False)
    write_summary(folder, SEEDS, width=16, ffn_width=44, layers=layers)
    np.savez(
        folder / "spread.npz",
        seeds=np.arange(SEEDS),
        spread=np.full((SEEDS, VOCAB), np.nan) if spread is None else spread,
    )
    seen = np.tile(np.arange(VOCAB), (SEEDS, 1))
    np.savez(losses / "tokens.npz", seeds=np.arange(SEEDS), tokens=TARGETS, nats=nats, seen=seen)
    return ArmGeometry(scores, name)


@pytest.fixture
def arms(tmp_path):
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.05, 0.15, (SEEDS, VOCAB))
    dense_nats = rng.uniform(300, 400, (SEEDS, VOCAB))
    dense = arm(tmp_path, "dense", [1, 2, 3], ["up", "gated"], 0.3, nats=dense_nats)
    stem = arm(tmp_path, "stem-third", [1, 3], ["rows", "up", "gated"], 0.0, spread, dense_nats + 5 * TARGETS * spread)
    return {"dense": dense, "stem-third": stem}


@pytest.fixture
def angles(catalog, arms, tmp_path):
    angles = Angles(Inputs("angular_spread", catalog, "laptop", tmp_path))
    angles.arms = arms
    return angles


def test_excess_divides_by_what_each_rank_allows(angles):
    seeds = np.arange(SEEDS) / 100 + 0.2 + 0.001
    expected = (seeds + 0.3) / random_p95(16) - seeds / random_p95(44)
    assert angles.contrast("dense", "stem-third", "excess:up").differences == pytest.approx(expected)


def test_gain_is_correlated_with_spread(angles, arms):
    """The made-up losses rise with closeness alone, so the correlation with spread is nearly 1."""
    kept, gain, _, seen = token_gains(arms["dense"], arms["stem-third"])
    assert list(kept) == list(range(50, VOCAB))
    assert gain.shape == seen.shape == (SEEDS, VOCAB - 50)
    assert angles.contrast("dense", "stem-third", "gain:rows").mean > 0.99


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


def test_what_can_not_be_tested(angles, arms):
    """By the text alone, whatever arms a claim compares."""
    assert angles.untestable("frequency:rows", "none") is None
    assert angles.untestable("gain:rows", "none") is None
    assert angles.untestable("p95:up", "none") is None
    cosines = arms["stem-third"].cosines
    cosines.drop(cosines[cosines.bucket == "1-31"].index, inplace=True)
    assert angles.untestable("frequency:rows", "none").startswith("too few tokens are frequent")
    assert np.isnan(angles.contrast("stem-third", "stem-third", "frequency:rows").mean)
    arms["stem-third"].tokens["tokens"][:] = 5
    assert angles.untestable("gain:rows", "none") == "0 tokens have 30 scored targets; 30 are needed"
