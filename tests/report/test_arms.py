from pathlib import Path

import pytest
from stemrepro.report.arms import Measured, all_runs, at_own_rate, read_arms
from stemrepro.report.scores import ArmScores

from stemrepro.recipe import Arm
from stemrepro.scale import Scale

BASE, THERE = ArmScores(Path("base")), ArmScores(Path("there"))


@pytest.fixture
def scale(tiny):
    best = {
        "dense": {"learning_rate": tiny.learning_rate},
        "stem-full": {"learning_rate": 7.0, "table_rate_factor": 2.0},
    }
    return Scale.model_validate(tiny.model_dump() | {"best_rates": best})


def test_own_rates(book, scale):
    assert at_own_rate("dense", Measured(BASE), book.arms["dense"], scale) is BASE  # the common rate is its best
    third = book.arms["stem-third"]
    assert at_own_rate("stem-third", Measured(BASE), third, scale) is None  # its family's best was not run
    assert at_own_rate("stem-third", Measured(BASE, points={"own-rate": THERE}), third, scale) is THERE
    assert at_own_rate("blend", Measured(BASE), book.arms["blend"], scale) is None  # its family's best is not known


def test_an_arm_with_the_best_rate_but_another_table_rate_is_not_at_its_best(tiny):
    best = {"stem-full": {"learning_rate": tiny.learning_rate, "table_rate_factor": 2.0}}
    scale = Scale.model_validate(tiny.model_dump() | {"best_rates": best})
    arm = Arm(ffn="stem", placement="full", family="stem-full")
    assert at_own_rate("x", Measured(BASE), arm, scale) is None
    arm = Arm(ffn="stem", placement="full", family="stem-full", table_rate_factor=2.0)
    assert at_own_rate("x", Measured(BASE), arm, scale) is BASE


def test_a_recipe_with_a_base_reads_its_arms_there(book):
    folder, recipe = Path("scores/x"), book.recipes["table_design"]
    stem = read_arms("table_design", recipe, folder)["stem-full"]
    assert stem.losses.folder == folder / "table_design/stem-full/half/losses"
    assert {point: own.folder.parts[-2] for point, own in stem.points.items()} == {
        "own-rate": "own-rate",
        "vocab-4": "vocab-4",
    }
    ladder = read_arms("scaling_ladder", book.recipes["scaling_ladder"], folder)["stem-full"]
    assert ladder.losses.folder == folder / "stem-full/losses"
    assert list(ladder.points) == list(book.recipes["scaling_ladder"].points)


def test_all_runs_names_points():
    assert list(all_runs({"dense": Measured(BASE, points={"rate-8": THERE})})) == ["dense", "dense at rate-8"]
