"""Metrics of recall, on made-up accuracies."""

import pandas as pd
import pytest

from stemrepro.measures.inputs import Inputs
from stemrepro.measures.recall import Recall
from tests.made_up import write_summary


def write(folder, arm, points, seeds=(0, 1, 2)):
    """An arm that says points[length][k] of 200 values right at the k-th number of pairs; half in first queries."""
    place = folder / "recall/main" / arm
    write_summary(place, len(seeds))
    rows = [
        {"pairs": pairs, "length": length, "queries": 200, "right": 2 * right + seed, "first_queries": 100,
         "first_right": right / 2, "seed": seed}
        for seed in seeds
        for length, of_length in points.items()
        for pairs, right in zip((2, 4, 8, 16), of_length, strict=True)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(place / "recall.csv", index=False)


@pytest.fixture
def measure(catalog, tmp_path):
    write(tmp_path, "stem-full", {65: (90, 80, 70, 60), 129: (50, 40, 30, 27)})
    write(tmp_path, "dense", {65: (92, 72, 52, 32), 129: (60, 50, 40, 30)})
    return Recall(Inputs("associative_recall", catalog, "recall", tmp_path))


def test_dense_must_recall_the_easiest(measure, catalog, tmp_path):
    assert measure.untestable("recalled", "dense-recalls") is None
    write(tmp_path, "dense", {65: (80, 72, 52, 32), 129: (60, 50, 40, 30)})
    poor = Recall(Inputs("associative_recall", catalog, "recall", tmp_path))
    assert (
        poor.untestable("recalled", "dense-recalls")
        == "dense says 79.1 to 81.6% (95%) of the values right with 2 pairs; 90 are needed"
    )
