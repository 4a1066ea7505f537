"""Contrasts from score files whose right answer is known."""

import numpy as np
import pytest

from stemrepro.errors import UserError
from stemrepro.measures.losses import contrast, interaction, slope
from stemrepro.scores.losses import ArmLosses
from tests.made_up import write_arm


@pytest.fixture
def arms(tmp_path):
    return {
        "dense": write_arm(tmp_path / "dense", [4.0, 4.1, 4.2], marks=(0.5, 0.0)),
        "stem-full": write_arm(tmp_path / "stem-full", [3.7, 3.7, 3.9], marks=(0.3, 0.0)),
    }


def test_differences_are_paired_by_seed(arms):
    dense, stem = arms.values()
    assert contrast(dense, stem, "prose").differences == pytest.approx([0.3, 0.4, 0.3])
    assert contrast(dense, stem, "glosses").differences == pytest.approx([0, 0, 0])
    assert contrast(dense, stem, "all").differences == pytest.approx([0.2, 0.8 / 3, 0.2])


def test_the_error_between_documents_equals_the_closed_form(arms):
    """Documents of equal size: the bootstrap's error of a mean is the plain standard error, here over two sources."""
    first, second = arms["dense"].documents, arms["stem-full"].documents
    difference = (first["nats"] - second["nats"]).mean(axis=0)[first["source"] == "speeches"] / 10
    plain = difference.std(ddof=0) / np.sqrt(len(difference))
    found = contrast(arms["dense"], arms["stem-full"], "prose")
    assert found.item_se == pytest.approx(plain / np.sqrt(2), rel=0.08)
    assert found.item_df == pytest.approx(2 * 39, rel=0.1)


def test_drift_is_the_change_of_the_gap(arms):
    assert contrast(arms["dense"], arms["stem-full"], "drift").differences == pytest.approx([-0.2, -0.2, -0.2])


def test_arms_with_other_documents_or_marks_are_named(arms, tmp_path):
    fewer = write_arm(tmp_path / "fewer", [3.7, 3.7, 3.9], documents=30, marks=(0.3, 0.2, 0.0))
    with pytest.raises(UserError, match=r"dense and .*fewer were scored on different documents; score them anew"):
        contrast(arms["dense"], fewer, "prose")
    with pytest.raises(UserError, match="different documents"):
        interaction((arms["dense"], arms["stem-full"]), (arms["dense"], fewer), "prose")
    with pytest.raises(UserError, match="were looked at after other numbers of tokens"):
        contrast(arms["dense"], fewer, "drift")


def test_an_arm_with_more_seeds_is_compared_on_the_first(arms):
    found = contrast(ArmLosses(arms["dense"].folder, 2), arms["stem-full"], "prose")
    assert found.differences == pytest.approx([0.3, 0.4])
    found = contrast(ArmLosses(arms["dense"].folder, 2), arms["stem-full"], "drift")
    assert found.differences == pytest.approx([-0.2, -0.2])


def test_slopes_are_least_squares_per_doubling():
    x = np.array([1.0, 2.0, 4.0])
    assert slope(x, np.array([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0]])) == pytest.approx([0.1, 0.0])
    x, y = np.array([3.0, 5.0, 11.0, 17.0]), np.array([0.2, 0.9, 0.4, 1.4])
    centred = np.log2(x) - np.log2(x).mean()
    assert slope(x, y[:, None])[0] == pytest.approx((centred * y).sum() / (centred**2).sum())
