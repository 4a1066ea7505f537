import numpy as np
import pytest

from stemrepro.measures import roi
from stemrepro.measures.comparison import accuracy
from stemrepro.measures.roi import flops_to
from tests.made_up import edit, made, write_arm
from tests.measures.test_items import write_items

FLOPS, LOSS = np.log([1.0, 2.0, 4.0, 8.0]), np.array([4.0, 3.0, 2.5, 2.4])


def test_flops_to_a_loss():
    assert np.exp(flops_to(FLOPS, LOSS, 2.75)) == pytest.approx(2 * np.sqrt(2))
    assert np.exp(flops_to(FLOPS, LOSS, 3.0)) == pytest.approx(2.0)
    assert flops_to(FLOPS, LOSS, 5.0) == FLOPS[0]
    assert np.isnan(flops_to(FLOPS, LOSS, 2.0))


def test_the_first_passage_counts():
    assert np.exp(flops_to(FLOPS, np.array([4.0, 2.0, 3.0, 1.0]), 2.0)) == pytest.approx(2.0)


@pytest.fixture
def scores(catalog, tmp_path):
    """STEM: half of dense's FLOPs, dense's final loss at the first of two marks, 60% to 40% right, chance at 25%."""
    made_up = made(catalog, "training_roi", tmp_path)
    for arm, prose, flops, share in (("dense", 4.0, 8.0, 4), ("stem-full", 3.0, 4.0, 6)):
        write_arm(tmp_path, arm, [prose, prose], evals=(1.0, 0.0), flops=flops)
        write_items(tmp_path, arm, {task: [1] * share + [0] * (10 - share) for task in made_up.recipe.tasks})
        edit(tmp_path, "benchmarks", arm, "benchmarks", lambda rows: rows.assign(acc_norm=rows["acc"]))
    return made_up


@pytest.mark.parametrize(
    ("metric", "high", "low", "value"),
    [
        (roi.flops, "dense", "stem-full", np.log(16 / 4)),  # dense ends at 16 FLOPs, where STEM is after 4
        (roi.equal_flops, "dense", "stem-full", 5.0 - 3.0),  # STEM ends at 8, where dense has its first mark
        (roi.accuracy_factor, "stem-full", "dense", np.log(6 / 4)),
        (roi.roi, "stem-full", "dense", np.log(6 / 4) + np.log(2)),
        (roi.roi_above_chance, "stem-full", "dense", np.log(35 / 15) + np.log(2)),
    ],
)
def test_metrics(scores, metric, high, low, value):
    assert metric(scores, high, low).differences == pytest.approx([value] * 2)


def test_an_arm_that_never_gets_there_saves_less_than_nothing(scores):
    """The other way round: STEM's end at 3.0 is out of dense's reach; STEM is at dense's after 4 of 16 FLOPs."""
    assert roi.flops(scores, "stem-full", "dense").differences == pytest.approx([-np.log(16 / 4)] * 2)


def test_the_error_between_items_is_one_of_logarithms(scores):
    """Relative to what the accuracy is above chance: 0.6 - 0.25."""
    percent = accuracy(scores, "stem-full", "dense", "scored").item_se
    assert percent > 0
    assert roi.roi(scores, "dense", "stem-full").item_se == pytest.approx(percent / 60)
    assert roi.roi_above_chance(scores, "dense", "stem-full").item_se == pytest.approx(percent / 35)
