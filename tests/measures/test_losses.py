"""Losses that are read from files, and contrasts whose right answer is known.

A wrong file is refused by name, and a run that diverged is excepted from what files must hold.
"""

import numpy as np
import pytest
from scipy import stats

from stemrepro.common.errors import UserError
from stemrepro.measures.losses import ArmLosses, Bucket, contrast, drift, interaction, paired, slope, slope_of_runs
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import edit, write_arm


@pytest.fixture
def dense(tmp_path):
    return write_arm(tmp_path, "dense", [4.0, 4.1, 4.2])


def test_one_bucket(dense):
    assert dense.loss("prose", Bucket("pair", "0")).tolist() == pytest.approx([5.0, 5.1, 5.2])
    with pytest.raises(UserError, match="nothing of dense and 'prose' in the bucket pair=7"):
        dense.loss("prose", Bucket("pair", "7"))


def test_bits_per_byte_are_of_prose(dense):
    """Two tokens of loss x are five bytes."""
    expected = [loss * 2 / 5 / np.log(2) for loss in (4.0, 4.1, 4.2)]
    assert dense.bits_per_byte.tolist() == pytest.approx(expected)


def test_the_first_seeds_alone(dense):
    first = ArmLosses(dense.folder, dense.address, 2)
    assert first.loss("prose").tolist() == pytest.approx([4.0, 4.1])
    assert len(first.steps["loss"]) == first.summary["seeds"] == 2
    prose = first.documents["source"] != "glosses"
    assert first.documents["nats"][prose].mean() == pytest.approx(10 * 4.05)
    assert first.curve["seed"].nunique() == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r[~((r.seed == 1) & (r.source == "bible"))], "source 'bible' some of 3 seeds"),
        (lambda r: r[r.seed != 2], "source 'bible' some"),
        (lambda r: r.iloc[:-1], "source .glosses. some of 3 seeds or a bucket is missing"),
        (lambda r: r.replace({"source": {"bible": "poems"}}), "source 'bible' some of 3 seeds"),
    ],
)
def test_losses_that_can_not_be(dense, change, words):
    edit(dense.folder, "losses", "dense", "losses", change)
    with pytest.raises(UserError, match=rf"losses\.parquet is missing or damaged \(of dense and {words}"):
        _ = ArmLosses(dense.folder, dense.address).losses


def test_a_run_that_diverged_is_known_by_seed_and_step(tmp_path):
    arm = write_arm(tmp_path, "stem-full@half", [4.0, 4.1, 4.2], diverged=(1,))
    assert (arm.seeds, arm.scored, arm.diverged) == ([0, 1, 2], [0, 2], {1: 15})
    assert arm.losses["seed"].unique().tolist() == [0, 2]
    assert np.isfinite(arm.steps["loss"]).sum(axis=1).tolist() == [20, 14, 20]
    with pytest.raises(Unmeasured, match=r"^stem-full@half diverged: the loss of seed 1 is NaN from step 15 on$"):
        arm.whole()
    other = write_arm(tmp_path, "dense@half", [4.0, 4.1, 4.2])
    with pytest.raises(Unmeasured, match="stem-full@half diverged"):
        paired(other, arm)
    first = ArmLosses(tmp_path, arm.address, 1)  # seed 0 alone is whole
    assert [losses.scored for losses in paired(other, first)] == [[0], [0]]


def test_different_seeds_are_refused(dense, tmp_path):
    other = write_arm(tmp_path, "other", [4.0, 4.1, 4.2], seeds=(1, 2))
    with pytest.raises(UserError, match="different seeds"):
        paired(dense, other)


@pytest.fixture
def arms(tmp_path):
    return {
        "dense": write_arm(tmp_path, "dense", [4.0, 4.1, 4.2], evals=(0.5, 0.0)),
        "stem-full": write_arm(tmp_path, "stem-full", [3.7, 3.7, 3.9], evals=(0.3, 0.0)),
    }


def test_differences_are_paired_by_seed(arms):
    dense, stem = arms.values()
    assert contrast(dense, stem, "prose").differences == pytest.approx([0.3, 0.4, 0.3])
    assert contrast(dense, stem, "glosses").differences == pytest.approx([0, 0, 0])
    assert contrast(dense, stem, "all").differences == pytest.approx([0.2, 0.8 / 3, 0.2])


def test_the_error_between_documents_equals_the_closed_form(arms):
    """Documents of equal size: the bootstrap's error of a mean is the plain standard error, here over two sources."""
    first, second = arms["dense"].documents, arms["stem-full"].documents
    difference = (first["nats"] - second["nats"])[first["source"] == "speeches"] / 10
    plain = difference.std(ddof=0) / np.sqrt(len(difference))
    result = contrast(arms["dense"], arms["stem-full"], "prose")
    assert result.item_se == pytest.approx(plain / np.sqrt(2), rel=0.08)


def test_arms_with_other_documents_or_marks_are_named(arms, tmp_path):
    fewer = write_arm(tmp_path, "fewer", [3.7, 3.7, 3.9], documents=30, evals=(0.3, 0.2, 0.0))
    with pytest.raises(UserError, match=r"dense and fewer were scored on different documents; score them anew"):
        contrast(arms["dense"], fewer, "prose")
    with pytest.raises(UserError, match="different documents"):
        interaction((arms["dense"], arms["stem-full"]), (arms["dense"], fewer), "prose")
    with pytest.raises(UserError, match="were evaluated at different marks"):
        drift(arms["dense"], fewer)


def test_slopes_are_least_squares_per_doubling():
    x = np.array([1.0, 2.0, 4.0])
    assert slope(x, np.array([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0]])) == pytest.approx([0.1, 0.0])
    x, y = np.array([3.0, 5.0, 11.0, 17.0]), np.array([0.2, 0.9, 0.4, 1.4])
    centred = np.log2(x) - np.log2(x).mean()
    assert slope(x, y[:, None])[0] == pytest.approx((centred * y).sum() / (centred**2).sum())


def test_slopes_of_runs_take_each_place_as_a_sample():
    """Of two places a slope is Welch's difference; seeds that move together at both gain nothing by it."""
    samples = np.random.default_rng(0).normal([[1.0], [1.5]], 0.1, (2, 5))
    welch = stats.ttest_ind(*samples[::-1], equal_var=False).confidence_interval(0.95)
    assert slope_of_runs([8.0, 16.0], samples).interval(0.05) == pytest.approx(welch)
    three = np.random.default_rng(1).normal(0, 0.1, (3, 4))
    for degree in (1, 2):
        by_seed = np.polyfit([0, 1, 2], three, degree)[0]
        assert slope_of_runs([1, 2, 4], three, degree).differences == pytest.approx(by_seed)
