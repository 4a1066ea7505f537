"""Metrics of capacity, on made-up bits."""

import numpy as np
import pytest

from stemrepro.measures.capacity import by_people, costs, dense_is_full, dense_learns, known, known_per
from stemrepro.measures.scores import Scores
from tests.made_up import grid, write_scores


def write(folder, arm, shares, seeds=(0, 1, 2)):
    """An arm that knows so much of the bits at a sixth, a third and all of the people, a bit more with each seed."""
    for variant, part, share in zip(("people-sixth", "people-third", "main"), (6, 3, 1), shares, strict=True):
        bits = 7680 / part
        rows = grid(seed=seeds).assign(people=384 // part, facts=1536 // part, bits=bits, first=0.5)
        rows["known"] = share * bits + rows["seed"]
        write_scores(folder, "capacity", f"{arm}@{variant}", len(seeds), {"capacity": rows})


@pytest.fixture
def scores(catalog, tmp_path):
    write(tmp_path, "stem-full", (0.99, 0.8, 0.5))
    write(tmp_path, "dense", (0.9, 0.5, 0.25))
    return Scores("knowledge_capacity", catalog, "capacity", tmp_path)


def test_shares_of_the_bits(scores):
    assert by_people(scores) == ["people-sixth", "people-third", "main"]
    np.testing.assert_allclose(known(scores, "stem-full", "dense").differences, 25, atol=1e-9)


def test_ratios_are_doublings_over_counted_costs(scores):
    counted = {arm: costs(scores, arm) for arm in ("stem-full", "dense")}
    assert counted["dense"]["total"] == counted["dense"]["active"]
    assert counted["stem-full"]["total"] == counted["stem-full"]["active"] + 5 * 517 * 44
    for name in ("total", "active", "flop"):
        differences = known_per(scores, "stem-full", "dense", name).differences
        expected = 1 + np.log2(counted["dense"][name] / counted["stem-full"][name])
        np.testing.assert_allclose(differences, expected, atol=1e-3)


def test_conditions(scores, catalog, tmp_path):
    assert dense_learns(scores) is None
    assert dense_is_full(scores) is None
    write(tmp_path / "other", "dense", (0.3, 0.9, 0.95))
    other = Scores("knowledge_capacity", catalog, "capacity", tmp_path / "other")
    assert dense_learns(other).startswith("dense knows 29.2 to 31.1% (95%) of the bits")
    assert dense_is_full(other).startswith("dense knows 94.8 to 95.1% (95%) of the bits")
