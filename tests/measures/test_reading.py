"""Readers of an arm's tables and of counts in a text: what is missing, cut off or not finite is named."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.reading import ArmScores, array, difference, read_csv
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import edit, grid, write_scores


class ArmRecall(ArmScores):
    kind = "recall"


@pytest.fixture
def arm(tmp_path):
    """Two seeds, two numbers of pairs."""
    lines = grid(seed=[0, 1], pairs=[1, 4]).assign(length=8, queries=4, right=[4, 3, 2, 1])
    lines = lines.assign(first_queries=0, first_right=0)
    return ArmRecall(tmp_path, write_scores(tmp_path, "recall", "dense@half", 2, {"recall": lines}))


def test_an_arm_s_lines_are_an_array_by_its_axes(arm):
    right = array(arm.by_seed("recall"), "right", "seed", "pairs")
    assert right.tolist() == [[4, 3], [2, 1]]
    assert arm.summary["seeds"] == 2
    with pytest.raises(UserError, match="'right' has 4 lines; by seed there should be 2"):
        array(arm.by_seed("recall"), "right", "seed")


@pytest.mark.parametrize("change", [lambda rows: rows[rows.seed != 1], lambda rows: rows[:-1]])
def test_a_seed_or_a_line_of_one_that_is_missing(arm, tmp_path, change):
    edit(tmp_path, "recall", "dense@half", "recall", change)
    with pytest.raises(UserError, match=r"recall\.parquet .*of dense@half a seed of 2, or a line of one, is missing"):
        ArmRecall(tmp_path, arm.address).by_seed("recall")


def test_a_run_that_diverged_has_no_lines_to_compare(arm, tmp_path):
    write_scores(tmp_path, "recall", "dense@half", 2, {"recall": arm.lines("recall")}, diverged={"1": 7})
    with pytest.raises(Unmeasured, match=r"^dense@half diverged: the loss of seed 1 is NaN from step 7 on$"):
        ArmRecall(tmp_path, arm.address).by_seed("recall")


def test_a_difference_is_over_the_seeds_that_both_have():
    assert difference(np.array([3.0, 4.0, 9.0]), np.array([1.0, 1.0])).differences.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.drop(columns="nats"), "no column 'nats'"),
        (lambda rows: rows.assign(nats=[1.0, np.nan]), "column 'nats' holds a number that is not finite"),
        (lambda rows: rows.assign(nats=[1.0, np.inf]), "column 'nats' holds a number that is not finite"),
    ],
)
def test_counts_that_are_not_what_they_must_be_are_named(tmp_path, change, words):
    rows = pd.DataFrame({"seed": [0, 1], "nats": [1.0, 2.0]})
    rows.to_csv(tmp_path / "a.csv", index=False)
    assert read_csv(tmp_path / "a.csv", "seed", "nats").equals(rows)
    change(rows).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match=rf"a\.csv is missing or damaged \({words}"):
        read_csv(tmp_path / "a.csv", "seed", "nats")
