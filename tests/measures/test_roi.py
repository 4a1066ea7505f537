from dataclasses import replace

import numpy as np
import pytest

from stemrepro.measures import items
from stemrepro.measures.comparison import ComparedArm
from stemrepro.measures.items import ArmItems
from stemrepro.measures.roi import TrainingRoi, flops_to
from tests.made_up import made, write_arm
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
def roi(catalog, tmp_path):
    """STEM: half of dense's FLOPs, dense's final loss at the first of two marks, 60% to 40% right, chance at 25%."""
    recipe = catalog.recipes["training_roi"]
    tasks = {name: replace(task, score="acc") for name, task in recipe.tasks.items()}
    recipe = recipe.model_copy(update={"tasks": tasks})

    def items(name, share):
        right = {task: [1] * share + [0] * (10 - share) for task in recipe.tasks}
        return ArmItems(write_items(tmp_path / f"{name}-items", right).folder, recipe)

    dense = write_arm(tmp_path / "dense", [4.0, 4.0], seeds=(0, 1), evals=(1.0, 0.0), flops=8.0)
    stem = write_arm(tmp_path / "stem", [3.0, 3.0], seeds=(0, 1), evals=(1.0, 0.0), flops=4.0)
    arms = {"dense": ComparedArm(dense, items("dense", 4)), "stem-full": ComparedArm(stem, items("stem", 6))}
    return made(TrainingRoi, catalog, "training_roi", arms)


@pytest.mark.parametrize(
    ("metric", "high", "low", "value"),
    [
        ("flops", "dense", "stem-full", np.log(16 / 4)),  # dense ends at 16 FLOPs, where STEM is after 4
        ("equal-flops", "dense", "stem-full", 5.0 - 3.0),  # STEM ends at 8, where dense has its first mark
        ("accuracy-factor", "stem-full", "dense", np.log(6 / 4)),
        ("roi", "stem-full", "dense", np.log(6 / 4) + np.log(2)),
        ("roi-above-chance", "stem-full", "dense", np.log(35 / 15) + np.log(2)),
    ],
)
def test_metrics(roi, metric, high, low, value):
    assert roi.contrast(high, low, metric).differences == pytest.approx([value] * 2)


def test_an_arm_that_never_gets_there_saves_less_than_nothing(roi):
    """The other way round: STEM's end at 3.0 is out of dense's reach; STEM is at dense's after 4 of 16 FLOPs."""
    assert roi.contrast("stem-full", "dense", "flops").differences == pytest.approx([-np.log(16 / 4)] * 2)


def test_the_error_between_items_is_one_of_logarithms(roi):
    """Relative to what the accuracy is above chance: 0.6 - 0.25."""
    percent = items.contrast(roi.arms["stem-full"].items, roi.arms["dense"].items, "accuracy", "held_out").item_se
    assert percent > 0
    assert roi.contrast("dense", "stem-full", "roi").item_se == pytest.approx(percent / 60)
    assert roi.contrast("dense", "stem-full", "roi-above-chance").item_se == pytest.approx(percent / 35)
