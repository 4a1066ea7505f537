"""Readings of counted text against laws and loops."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.measures.scores import Scores
from stemrepro.measures.text import cache_below, experts_touched, not_sublinear, text_counts, touches_more


@pytest.fixture
def counts(catalog, tmp_path):
    """Two sources that follow Heaps' law exactly, and caches with known rates."""
    folder = tmp_path / "text"
    folder.mkdir()
    rows = [
        (vocab, source, window, n, factor * (1 + 0.1 * window) * n**power)
        for vocab in (1000, 50000)
        for source, factor, power in (("a", 3, 0.6), ("b", 2, 0.8))
        for window in range(4)
        for n in (64, 256, 1024, 4096)
    ]
    distinct = pd.DataFrame(rows, columns=["vocab", "source", "window", "length", "distinct"])
    distinct.to_csv(folder / "distinct.csv", index=False)
    rates = [
        (50000, source, requests, policy, 0.1, 5000, stretch, rate + 0.01 * stretch)
        for source, rate in (("a", 0.85), ("b", 0.7))
        for requests in ("every token", "distinct in a chunk")
        for policy in ("LFU", "LRU")
        for stretch in range(3)
    ]
    columns = ["vocab", "source", "asked", "policy", "share", "rows", "stretch", "hit_rate"]
    pd.DataFrame(rates, columns=columns).to_csv(folder / "cache.csv", index=False)
    return text_counts(Scores("long_context_capacity", catalog, "laptop", tmp_path))


def test_heaps_law_is_recovered(counts):
    assert counts.vocab == 50000
    for source, factor, power in (("a", 3, 0.6), ("b", 2, 0.8)):
        exponent, intercept = counts.heaps(source, 50000)
        assert exponent.mean == pytest.approx(power)
        assert intercept.mean == pytest.approx(np.mean([np.log(factor * (1 + 0.1 * w)) for w in range(4)]))
        fit = np.polyfit(np.log([256, 1024, 4096]), np.log(counts.growth(source, 50000)[[256, 1024, 4096]]).mean(), 1)
        assert [exponent.mean, intercept.mean] == pytest.approx(list(fit))


def test_exact_claims_count_sources(counts, catalog, tmp_path):
    scores = Scores("long_context_capacity", catalog, "laptop", tmp_path)
    assert not_sublinear(scores) == 0
    assert cache_below(scores, 80, "every token", "LFU", 0.1) == 1
    assert cache_below(scores, 60, "every token", "LFU", 0.1) == 0
    assert touches_more(scores, 16, 1) == 0
    assert touches_more(scores, 1000000, 1) == 2


def test_experts_touched_equals_drawing():
    rng = np.random.default_rng(0)
    share = np.mean([len({e for _ in range(10) for e in rng.choice(16, 2, replace=False)}) / 16 for _ in range(2000)])
    assert experts_touched(10, 16, 2) == pytest.approx(share, abs=0.01)
