"""How far a sweep is: a study of made-up trials, by a clock of our own."""

from datetime import datetime, timedelta
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState

from stemrepro.sweeps.going import Going


def test_how_far_a_sweep_is_from_its_studies_and_this_workers_own_trial(monkeypatch):
    """One trial had ended before; since then one took 100 seconds, and this worker's own is half done after 50: 100 seconds a trial. Of the
    four that were asked for one hasn't begun, so that the two workers need another 100 seconds."""
    start = datetime(2026, 1, 1)

    def add(state, begun, took=None):
        settings = {"arm": "dense", "learning_rate": 0.01, "seed": 0}
        study.add_trial(optuna.trial.FrozenTrial(
            number=-1, trial_id=-1, state=state, value=1.0 if state == TrialState.COMPLETE else None, params={}, distributions={}, system_attrs={},
            user_attrs={"settings": settings}, intermediate_values={}, datetime_start=begun,
            datetime_complete=None if took is None else begun + timedelta(seconds=took),
        ))  # fmt: skip

    study = optuna.create_study(study_name="two")
    add(TrialState.COMPLETE, start - timedelta(hours=1), 7)
    add(TrialState.COMPLETE, start - timedelta(hours=2), 7)  # of other code: it doesn't count
    going = Going("two", [study], 1, 4, 2)
    assert going.course().line() == "sweep two: 1 of 4 have ended"
    add(TrialState.COMPLETE, start, 100)
    add(TrialState.RUNNING, start + timedelta(seconds=100))
    add(TrialState.FAIL, start, 3)
    assert going.course().line().endswith("about 2 min left; now dense learning_rate 0.01, seed 0")
    monkeypatch.setattr("stemrepro.sweeps.going.time.time", lambda: (start + timedelta(seconds=150)).timestamp())
    going.report(SimpleNamespace(study=study, number=3), 0.5)
    course = going.course()
    assert course.left() == pytest.approx(100)
    assert course.line().startswith("sweep two: 2 of 4 have ended")
    assert course.line().endswith("now dense learning_rate 0.01, seed 0 (50%)")
