"""The learning-rate schedules, the steps of evaluations, and where budgets branch."""

import itertools
import math

import pytest

from stemrepro.config.training import RunTraining
from stemrepro.training.schedule import branch_step, eval_steps, schedule_factor
from tests.conftest import TINY


def training(**fields) -> RunTraining:
    """Of 100 steps of 4 x 32 tokens."""
    base = TINY["training"] | {"tokens": 32 * 4 * 100, "sequence": 32, "learning_rate": 0.01, "final_rate": 0.2}
    if fields.get("schedule") == "wsd":
        base = base | {"warmup": None}
    return RunTraining.model_validate(base | fields)


def test_rate_rises_then_falls_on_a_cosine():
    settings = training(warmup=0.1)
    factors = [schedule_factor(step, settings) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == factors[10] == 1.0
    assert factors[55] == pytest.approx(0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * 0.5)))
    assert factors[99] == pytest.approx(0.2, abs=0.001)
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))


def test_learning_rate_of_wsd_stays_then_decays_on_a_line():
    settings = training(schedule="wsd", warmup_tokens=32 * 4 * 5, decay=0.25)
    factors = [schedule_factor(step, settings) for step in range(100)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert branch_step(settings) == 75
    assert set(factors[5:76]) == {1.0}
    assert factors[85] == pytest.approx(1 - 0.8 * 10 / 25)
    assert factors[99] == pytest.approx(1 - 0.8 * 24 / 25)


def test_longer_runs_under_wsd_have_the_same_rates_and_marks_up_to_the_decay():
    short = training(schedule="wsd", warmup_tokens=640, evals=2, tokens=32 * 4 * 100)
    long = training(schedule="wsd", warmup_tokens=640, evals=2, tokens=32 * 4 * 900)
    shared = range(branch_step(short))
    assert [schedule_factor(step, short) for step in shared] == [schedule_factor(step, long) for step in shared]
    assert eval_steps(short) - {100} == {step for step in eval_steps(long) if step <= 100}
    assert eval_steps(short) == {32, 45, 64, 91, 100}


def test_marks_of_a_cosine_are_evenly_spaced():
    assert eval_steps(training(evals=4)) == {25, 50, 75, 100}
