"""Metrics of mid-training, on made-up losses."""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.mid_training import MidTraining
from tests.made_up import write_arm, write_summary


@pytest.fixture
def measure(catalog, tmp_path):
    losses = tmp_path / "losses"
    for variant, arm, prose in (
        ("main", "dense", (4.0, 4.1)),
        ("mid", "dense", (3.9, 4.0)),
        ("mid", "stem-third", (3.7, 3.9)),
        ("mid", "stem-full", (3.6, 3.7)),
        ("mid-anew", "stem-third", (3.8, 4.2)),
        ("mid-anew", "stem-full", (3.7, 3.9)),
        ("further-320", "stem-full", (3.5, 3.5)),
        ("further-320-anew", "stem-full", (3.55, 3.6)),
    ):
        write_arm(losses / variant / arm, prose, seeds=(0, 1))
    return MidTraining(Inputs("mid_training", catalog, "laptop", tmp_path))


@pytest.mark.parametrize(
    ("metric", "high", "low", "expected"),
    [
        ("loss:prose", "dense", "stem-third", (0.2, 0.1)),
        ("loss:prose", "stem-third", "stem-full", (0.1, 0.2)),
        ("anew:prose", "stem-third", "dense", (0.1, 0.3)),
        ("anew:prose", "stem-full", "dense", (0.1, 0.2)),
        ("anew:prose@further-320", "stem-full", "dense", (0.05, 0.1)),
        ("despite:prose", "dense", "stem-third", (0.1, -0.2)),
        ("despite:prose", "dense", "stem-full", (0.2, 0.1)),
    ],
)
def test_losses(measure, metric, high, low, expected):
    contrast = measure.contrast(high, low, metric)
    np.testing.assert_allclose(contrast.differences, expected, atol=1e-9)


def test_a_row_is_read_as_often_as_a_stage_has_tokens_for_it(measure):
    assert [round(measure.sightings(f"further-{count}")) for count in (20, 80, 320, 1280)] == [20, 80, 320, 1280]


@pytest.mark.parametrize(
    ("metric", "pair"),
    [
        ("anew:prose", ("stem-third", "stem-full")),
        ("anew:prose", ("dense", "stem-third")),
        ("despite:code", ("stem-full", "dense")),
    ],
)
def test_tables_drawn_anew_are_compared_with_an_arm_that_has_none(measure, metric, pair):
    with pytest.raises(UserError, match="whose tables are drawn anew"):
        measure.contrast(*pair, metric)


def test_scores_are_those_after_the_stage(measure, tmp_path):
    """This scale has none before the stage, and the recipe requests none."""
    metric = "score:gsm8k@mid"
    for arm in ("dense", "stem-third"):
        write_summary(tmp_path / "reasoning" / "mid" / arm, 2, tasks={})
    assert measure.untestable(metric, "none").startswith("these items are the hub's")
    for arm, variants in (("dense", (50, 60, 70)), ("stem-third", (50, 64, 72))):
        place = tmp_path / "reasoning" / "mid" / arm
        write_summary(place, 2, tasks={"gsm8k": {"items": 3, "mean": 60, "floor": 0}})
        value = np.array([variants, variants], np.float32)
        fields = {"length": np.full(3, 50), "floor": np.zeros(3), "cut": np.zeros(3, bool), "clusters": np.arange(3)}
        arrays = {f"gsm8k/{name}": array for name, array in fields.items()}
        np.savez(place / "reasoning.npz", seeds=np.arange(2), **{"gsm8k/value": value}, **arrays)
    np.testing.assert_allclose(measure.contrast("stem-third", "dense", metric).differences, 2.0)
    assert measure.untestable(metric, "dense-answers") is None
