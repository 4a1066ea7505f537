"""Metrics of the retrofit, on made-up losses."""

import numpy as np
import pytest

from stemrepro.errors import UserError
from stemrepro.measures.base import Inputs
from stemrepro.measures.retrofit import Retrofit
from tests.made_up import write_arm

PROSE = {
    ("main", "stem-full"): (3.50, 3.60),
    ("second-half", "dense"): (3.90, 4.00),
    ("second-half", "stem-full"): (3.60, 3.80),
    ("second-half-token-means", "stem-full"): (3.65, 3.70),
    ("second-half-mean-row", "stem-full"): (3.75, 3.73),
}
FIRST = {"second-half": 5.0, "second-half-token-means": 5.5, "second-half-mean-row": 7.0}


@pytest.fixture
def measure(book, tmp_path):
    for (point, arm), prose in PROSE.items():
        place = tmp_path / "losses" / point / arm
        write_arm(place, prose, seeds=(0, 1))
        if point in FIRST:
            loss = np.array([[FIRST[point], 4.0], [FIRST[point] + 0.1, 4.0]])
            np.savez(place / "steps.npz", seeds=np.arange(2), loss=loss, norm=np.ones_like(loss))
    return Retrofit(Inputs("retrofit", book, "laptop", tmp_path))


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
    ],
)
def test_differences(measure, metric, expected):
    pair = ("dense", "stem-full") if metric.startswith("gain") else ("stem-full", "dense")
    np.testing.assert_allclose(measure.contrast(*pair, metric).differences, expected, atol=1e-9)
    with pytest.raises(UserError, match="one of stem-third, stem-full beside an arm without tables"):
        measure.contrast(*reversed(pair), metric)
    with pytest.raises(UserError, match="beside an arm without tables"):
        measure.contrast("stem-full", "stem-third", metric)


def test_every_claim_is_of_a_metric_that_is_measured(book, measure):
    recipe = book.recipes["retrofit"]
    assert {claim.metric.partition(":")[0] for claim in recipe.claims.values()} == {"gain", "behind", "at-once"}
    for claim in recipe.claims.values():
        if "stem-full" in claim.arms:
            assert len(measure.contrast(*claim.arms, claim.metric).differences) == 2
