"""What of a gain is left over half of it, and how a gain goes with the vocabulary, by hand."""

import numpy as np
import pytest

from stemrepro.measures import rivals, tables
from tests.made_up import made, write_arms

BITS = 100 / 250 / np.log(2)
"""Bits per byte of a loss of one nat per token: write_arm has 250 bytes in 100 tokens."""


def test_half_of_a_gain(catalog, tmp_path):
    prose = {"dense": [4.0, 4.1], "token-only": [3.8, 3.6], "stem-full": [3.6, 3.7]}
    write_arms(tmp_path, {arm: {"prose": losses} for arm, losses in prose.items()})
    left = rivals.half_of_gain(made(catalog, "rivals", tmp_path), "token-only", "stem-full")
    assert left.differences == pytest.approx([0.2 - 0.2, -0.1 - 0.2])


def test_a_gain_grows_by_its_slope_over_vocabularies(catalog, tmp_path):
    """By 0.3 and 0.1 nats from a vocabulary to four times as many pieces: two doublings."""
    gains = {"": [0.2, 0.4], "@vocab-4": [0.5, 0.5]}
    arms = {f"dense{at}": {"prose": [4.0, 4.1]} for at in gains}
    arms |= {f"stem-full{at}": {"prose": [4.0 - gain[0], 4.1 - gain[1]]} for at, gain in gains.items()}
    write_arms(tmp_path, arms)
    scores = made(catalog, "table_design", tmp_path)
    sizes = list(tables.vocabularies(scores, "dense"))
    assert sizes == [scores.scale.model.vocab, 4 * scores.scale.model.vocab]
    slope = tables.vocabulary(scores, "dense", "stem-full").differences
    assert slope == pytest.approx(np.array([0.3, 0.1]) / 2 * BITS)
