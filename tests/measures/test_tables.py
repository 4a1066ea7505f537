"""Contrasts of table_design on made-up losses."""

import numpy as np
import pytest

from stemrepro.measures.comparison import ComparedArm
from stemrepro.measures.tables import Tables
from tests.made_up import made, write_arm


@pytest.fixture
def arms(tmp_path):
    """STEM gains 0.2 in the scale's vocabulary, 0.4 at its own rate, 0.6 in a vocabulary four times as large."""

    def arm(name, prose, of_vocab, **variants):
        runs = {variant: write_arm(tmp_path / f"{name}-{variant}", losses) for variant, losses in variants.items()}
        other = write_arm(tmp_path / f"{name}-vocab", of_vocab)
        return ComparedArm(write_arm(tmp_path / name, prose), variants={"half-vocab-4": other} | runs)

    return {
        "dense": arm("dense", [4.0, 4.1, 4.2], [3.6, 3.7, 3.8]),
        "stem-full": arm("stem", [3.8, 3.9, 4.0], [3.0, 3.1, 3.2], **{"half-own-rate": [3.6, 3.7, 3.8]}),
    }


@pytest.fixture
def tables(arms, catalog):
    return made(Tables, catalog, "table_design", arms)


def test_the_slope_is_in_bits_per_byte_per_doubling(tables):
    """write_arm has two tokens in five bytes; from 1,024 to 4,096 are two doublings."""
    differences = tables.contrast("dense", "stem-full", "vocabulary").differences
    assert differences == pytest.approx([(0.6 - 0.2) * 2 / 5 / np.log(2) / 2] * 3)


def test_own_rates_are_known_for_dense_and_stem_full_alone(tables):
    assert tables.own("dense", "stem-full", "prose").differences == pytest.approx([0.4] * 3)
    assert tables.own("dense", "stem-full", "vocabulary") is None
