"""Contrasts of angles against numbers put in by hand."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from stemrepro.report.geometry import (
    ArmGeometry,
    contrast,
    correlation_within,
    failed_precondition,
    partial_rank_correlation,
    random_p95,
    token_gains,
)

from stemrepro.errors import UserError

SEEDS, VOCAB = 3, 200


def arm(folder, layers, kinds, shift=0.0, spread=None, nats=None):
    """Score files with p95 = seed / 100 + layer / 10 + share / 1000 + shift, twice that where centred."""
    (folder / "geometry").mkdir(parents=True)
    (folder / "losses").mkdir()
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
                            rows.append((seed, share, layer, what, bucket, centred, value * (1 + centred), -value))
    columns = ["seed", "share", "layer", "what", "bucket", "centred", "p95", "mode"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "geometry" / "cosines.csv", index=False)
    about = {"width": 16, "ffn_width": 44, "layers": layers, "params_hash": "p", "data_hash": "d", "seeds": SEEDS}
    (folder / "geometry" / "summary.json").write_text(json.dumps(about))
    np.savez(folder / "geometry" / "spread.npz", spread=np.full((SEEDS, VOCAB), np.nan) if spread is None else spread)
    seen = np.tile(np.arange(VOCAB), (SEEDS, 1))
    tokens = np.where(np.arange(VOCAB) < 50, 10, 100)
    np.savez(folder / "losses" / "tokens.npz", seeds=np.arange(SEEDS), tokens=tokens, nats=nats, seen=seen)
    return ArmGeometry(folder)


@pytest.fixture
def arms(tmp_path):
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.05, 0.15, (SEEDS, VOCAB))
    dense_nats = rng.uniform(300, 400, (SEEDS, VOCAB))
    dense = arm(tmp_path / "dense", [1, 2, 3], ["up", "gated"], 0.3, nats=dense_nats)
    stem = arm(tmp_path / "stem", [1, 3], ["rows", "up", "gated"], 0.0, spread, dense_nats + 500 * spread)
    return {"dense": dense, "stem-third": stem}


def test_differences_are_over_common_layers(arms):
    """Layers 1 and 3 of both: only the shift is left."""
    assert contrast(arms, "dense", "stem-third", "p95:up").differences == pytest.approx([0.3] * SEEDS)
    assert contrast(arms, "dense", "stem-third", "p95:gated:centred").differences == pytest.approx([0.6] * SEEDS)
    assert contrast(arms, "dense", "stem-third", "mode:up").differences == pytest.approx([-0.3] * SEEDS)


def test_excess_divides_by_what_each_rank_allows(arms):
    seeds = np.arange(SEEDS) / 100 + 0.2 + 0.001
    expected = (seeds + 0.3) / random_p95(16) - seeds / random_p95(44)
    assert contrast(arms, "dense", "stem-third", "excess:up").differences == pytest.approx(expected)


def test_states_of_one_arm(arms):
    pair = ("stem-third", "stem-third")
    mean = np.arange(SEEDS) / 100 + 0.2 + 0.001
    assert contrast(arms, *pair, "floor:rows").differences == pytest.approx(mean - random_p95(44))
    assert contrast(arms, *pair, "learnt:rows").differences == pytest.approx([-0.001] * SEEDS)
    assert contrast(arms, *pair, "depth:rows").differences == pytest.approx([0.2] * SEEDS)
    assert contrast(arms, *pair, "frequency:rows").differences == pytest.approx([0.5] * SEEDS)
    with pytest.raises(UserError, match="metric 'chess:rows' is unknown"):
        contrast(arms, *pair, "chess:rows")


def test_gain_is_correlated_with_spread(arms):
    """The made-up losses rise with closeness alone, so the correlation with spread is nearly 1."""
    kept, gain, _, seen = token_gains(arms["dense"], arms["stem-third"])
    assert list(kept) == list(range(50, VOCAB))
    assert gain.shape == seen.shape == (SEEDS, VOCAB - 50)
    assert contrast(arms, "dense", "stem-third", "gain:rows").mean > 0.99


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


def test_what_can_not_be_tested(arms, book):
    claims = book.recipes["angular_spread"].claims
    assert failed_precondition(claims["frequent-less-spread"], {"stem-full": arms["stem-third"]}) is None
    assert failed_precondition(claims["frequent-less-spread"], {"stem-full": arms["dense"]}).startswith("too few")
    arms["dense"].tokens["tokens"][:] = arms["stem-third"].tokens["tokens"][:] = 5
    few = {"dense": arms["dense"], "stem-full": arms["stem-third"]}
    assert failed_precondition(claims["spread-predicts-gain"], few) == "fewer than 30 tokens have 30 scored targets"
