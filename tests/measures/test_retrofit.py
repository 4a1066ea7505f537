"""Metrics of the retrofit, on made-up losses."""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.retrofit import Retrofit
from tests.made_up import write_arm

PROSE = {
    ("main", "stem-full"): (3.50, 3.60),
    ("main", "dense"): (3.80, 3.95),
    ("second-half", "dense"): (3.90, 4.00),
    ("second-half", "stem-full"): (3.60, 3.80),
    ("second-half-token-means", "stem-full"): (3.65, 3.70),
    ("second-half-mean-row", "stem-full"): (3.75, 3.73),
    ("second-half-mean-row", "stem-frozen"): (3.86, 3.94),
    ("second-half-interpolated", "stem-interpolated"): (3.55, 3.65),
}
EARLY = {
    "second-half": 0.0,
    "second-half-token-means": np.array([[0.1, 0.3], [-0.2, 0.0]]),
    "second-half-mean-row": 0.5,
}
"""What steps 3 and 4 of 20, the second tenth, have more."""
FIRST = {"second-half": 5.0, "second-half-token-means": 5.5, "second-half-mean-row": 7.0}


@pytest.fixture
def measure(catalog, tmp_path):
    for (variant, arm), prose in PROSE.items():
        place = tmp_path / "losses" / variant / arm
        write_arm(place, prose, seeds=(0, 1))
        if variant in FIRST:
            loss = np.tile(np.linspace(4.0, 3.0, 20), (2, 1)) + np.array([[0.0], [0.2]])
            loss[:, 0] = FIRST[variant] + np.array([0, 0.1])
            loss[:, 2:4] += EARLY[variant]
            np.savez(place / "steps.npz", seeds=np.arange(2), loss=loss, norm=np.ones_like(loss))
    return Retrofit(Inputs("retrofit", catalog, "laptop", tmp_path))


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("behind:scratch", (0.05, -0.10)),
        ("behind:one-schedule", (0.15, 0.10)),
        ("behind:mean-row", (-0.10, -0.03)),
        ("gain:scratch", (0.30, 0.20)),
        ("gain:token-means", (0.25, 0.30)),
        ("gain:mean-row", (0.15, 0.27)),
        ("at-once:token-means", (0.5, 0.5)),
        ("at-once:mean-row", (2.0, 2.0)),
        ("lead:scratch", (0.20, 0.15)),
        ("lead:token-means", (0.15, 0.25)),
        ("lead:mean-row", (0.05, 0.22)),
        ("early:token-means", (0.2, -0.1)),
        ("early:mean-row", (0.5, 0.5)),
    ],
)
def test_differences(measure, metric, expected):
    pair = ("dense", "stem-full") if metric[:4] in ("gain", "lead") else ("stem-full", "dense")
    np.testing.assert_allclose(measure.contrast(*pair, metric).differences, expected, atol=1e-9)
    with pytest.raises(UserError, match="one of stem-third, stem-full and one without tables"):
        measure.contrast(*reversed(pair), metric)
    with pytest.raises(UserError, match="and one without tables"):
        measure.contrast("stem-full", "stem-third", metric)


def test_interpolation_is_compared_with_dense_and_with_rows_of_means(measure):
    for high, metric, expected in (
        ("dense", "gain:interpolated", (0.35, 0.35)), ("dense", "lead:interpolated", (0.25, 0.30)),
        ("stem-full", "interpolation", (0.10, 0.05)),
    ):  # fmt: skip
        contrast = measure.contrast(high, "stem-interpolated", metric)
        np.testing.assert_allclose(contrast.differences, expected, atol=1e-9)
    with pytest.raises(UserError, match="one of stem-interpolated and one without tables"):
        measure.contrast("dense", "stem-full", "gain:interpolated")


def test_a_constant_row_that_gains_too_makes_gains_untestable(measure):
    """It ends 0.04 and 0.06 below dense."""
    assert measure.untestable("gain:token-means", "no-gain-without-information", 0.02) is None  # of two seeds
    reason = measure.untestable("gain:token-means", "no-gain-without-information", -0.08)
    assert (
        reason
        == "stem-frozen, whose only row never learns, ends -0.077 to 0.177 nats (95%) below dense in two stages, "
        "more than the -0.08 that count"
    )
    assert measure.untestable("behind:scratch", "none", 0.02) is None
