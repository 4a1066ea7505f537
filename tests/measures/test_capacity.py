"""Metrics of capacity, on made-up bits."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.measures.capacity import Capacity
from stemrepro.measures.inputs import Inputs
from tests.made_up import write_summary


def write(folder, arm, shares, seeds=(0, 1, 2)):
    """An arm that knows so much of the bits at a sixth, a third and all of the people, a bit more with each seed."""
    for variant, factor, share in zip(("people-sixth", "people-third", "main"), (1 / 6, 1 / 3, 1), shares, strict=True):
        place, bits = folder / "capacity" / variant / arm, 7680 * factor
        write_summary(place, len(seeds))
        rows = [
            {"seed": seed, "people": 384 * factor, "facts": 1536 * factor, "bits": bits, "known": share * bits + seed,
             "first": 0.5}
            for seed in seeds
        ]  # fmt: skip
        pd.DataFrame(rows).to_csv(place / "capacity.csv", index=False)


@pytest.fixture
def measure(catalog, tmp_path):
    write(tmp_path, "stem-full", (1.0, 0.8, 0.5))
    write(tmp_path, "dense", (0.9, 0.5, 0.25))
    return Capacity(Inputs("knowledge_capacity", catalog, "capacity", tmp_path))


def test_shares_of_the_bits(measure):
    assert list(measure.sizes) == ["people-sixth", "people-third", "main"]
    np.testing.assert_allclose(measure.contrast("stem-full", "dense", "known").differences, 25, atol=1e-9)


def test_ratios_are_doublings_over_counted_costs(measure):
    costs = {arm: measure.costs(arm) for arm in ("stem-full", "dense")}
    assert costs["dense"]["total"] == costs["dense"]["active"]
    assert costs["stem-full"]["total"] == costs["stem-full"]["active"] + 5 * 517 * 44
    for name in ("total", "active", "flop"):
        differences = measure.contrast("stem-full", "dense", name).differences
        expected = 1 + np.log2(costs["dense"][name] / costs["stem-full"][name])
        np.testing.assert_allclose(differences, expected, atol=1e-3)


def test_preconditions(measure, catalog, tmp_path):
    assert measure.untestable("known", "dense-learns") is None
    assert measure.untestable("known", "dense-is-full") is None
    write(tmp_path / "other", "dense", (0.3, 0.9, 0.95))
    other = Capacity(Inputs("knowledge_capacity", catalog, "capacity", tmp_path / "other"))
    assert other.untestable("known", "dense-learns").startswith("dense knows 29.2 to 31.1% (95%) of the bits")
    assert other.untestable("known", "dense-is-full").startswith("dense knows 94.8 to 95.1% (95%) of the bits")
