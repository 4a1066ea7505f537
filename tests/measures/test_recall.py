"""Metrics of recall, on made-up accuracies."""

import numpy as np
import pytest

from stemrepro.measures.recall import dense_recalls, pairs_slope, recalled
from stemrepro.measures.scores import Scores
from tests.made_up import grid, write_scores


def write(folder, arm, points, seeds=(0, 1, 2)):
    """An arm that says points[length][k] of 200 values right at the k-th number of pairs; half in first queries."""
    rows = grid(seed=seeds, length=points, pairs=(2, 4, 8, 16)).assign(queries=200, first_queries=100)
    right = np.tile(np.ravel(list(points.values())), len(seeds))
    rows = rows.assign(right=2 * right + rows["seed"], first_right=right // 2)
    write_scores(folder, "recall", arm, len(seeds), {"recall": rows})


@pytest.fixture
def scores(catalog, tmp_path):
    write(tmp_path, "stem-full", {65: (90, 80, 70, 60), 129: (50, 40, 30, 27)})
    write(tmp_path, "dense", {65: (92, 72, 52, 32), 129: (60, 50, 40, 30)})
    return Scores("associative_recall", catalog, "recall", tmp_path)


def test_points_by_length_and_number_of_pairs(scores):
    pair = ("stem-full", "dense")
    np.testing.assert_allclose(recalled(scores, *pair).differences, 75 - 62)
    np.testing.assert_allclose(recalled(scores, *pair, "longer").differences, (-10 - 10 - 10 - 3) / 4)
    np.testing.assert_allclose(recalled(scores, *pair, "longer-most").differences, -3)
    np.testing.assert_allclose(pairs_slope(scores, *pair).differences, 10)  # leads of -2, 8, 18 and 28


def test_dense_must_recall_the_easiest(scores, catalog, tmp_path):
    assert dense_recalls(scores) is None
    write(tmp_path, "dense", {65: (80, 72, 52, 32), 129: (60, 50, 40, 30)})
    poor = Scores("associative_recall", catalog, "recall", tmp_path)
    assert dense_recalls(poor) == "dense says 79.1 to 81.6% (95%) of the values right with 2 pairs; 90 are needed"
