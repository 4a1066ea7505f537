"""Contrasts of table_design on made-up losses."""

import numpy as np
import pytest
from stemrepro.report.arms import Measured
from stemrepro.report.tables import Tables

from tests.report.test_scores import write_arm


@pytest.fixture
def measured(tmp_path):
    """STEM gains 0.2 in the scale's vocabulary, 0.4 at its own rate, 0.6 in a vocabulary four times as large."""

    def arm(name, here, there, **points):
        own = {point: write_arm(tmp_path / f"{name}-{point}", prose) for point, prose in points.items()}
        other = write_arm(tmp_path / f"{name}-vocab", there)
        return Measured(write_arm(tmp_path / name, here), points={"vocab-4": other} | own)

    return {
        "dense": arm("dense", [4.0, 4.1, 4.2], [3.6, 3.7, 3.8]),
        "stem-full": arm("stem", [3.8, 3.9, 4.0], [3.0, 3.1, 3.2], **{"own-rate": [3.6, 3.7, 3.8]}),
    }


@pytest.fixture
def tables(book):
    return Tables(book.arms, book.scales["laptop"], book.recipes["table_design"])


def test_vocabularies_are_in_order(measured, tables):
    found = tables.vocabularies(measured["dense"])
    assert list(found) == [1024, 4096]
    assert [len(own.bits_per_byte()) for own in found.values()] == [3, 3]


def test_the_slope_is_in_bits_per_byte_a_doubling(measured, tables):
    """write_arm has two tokens in five bytes; from 1,024 to 4,096 are two doublings."""
    found = tables.contrast(measured, "dense", "stem-full", "vocabulary").differences
    assert found == pytest.approx([(0.6 - 0.2) * 2 / 5 / np.log(2) / 2] * 3)


def test_decay_is_compared_at_the_same_table_rate(measured, tables):
    both = {"stem-full": measured["stem-full"], "stem-tuned": Measured(measured["stem-full"].points["own-rate"])}
    assert tables.contrast(both, "stem-full", "stem-tuned", "decay").differences == pytest.approx([0, 0, 0])
    assert tables.contrast(both, "stem-tuned", "stem-full", "rate").differences == pytest.approx([0, 0, 0])
    common = {"stem-full": measured["stem-full"], "stem-decayed-8": Measured(measured["dense"].losses)}
    assert tables.contrast(common, "stem-decayed-8", "stem-full", "rate").differences == pytest.approx([0.4] * 3)


def test_other_metrics_are_a_comparisons(measured, tables):
    assert tables.contrast(measured, "dense", "stem-full", "prose").differences == pytest.approx([0.2] * 3)


def test_own_rates_are_known_for_dense_and_stem_full_alone(measured, tables):
    assert tables.own_rate_contrast(measured, "dense", "stem-full", "prose").differences == pytest.approx([0.4] * 3)
    assert tables.own_rate_contrast(measured, "dense", "stem-full", "vocabulary") is None
    assert tables.own_rate_contrast(measured, "stem-small", "stem-full", "prose") is None
