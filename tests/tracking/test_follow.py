"""MLflow is brought up to date while something trains, and its errors don't reach the training."""

import sys
import threading

import pytest

from stemrepro.common.errors import UserError
from stemrepro.tracking import follow, sync
from tests.conftest import ROOT


@pytest.fixture
def synced(monkeypatch):
    """The names that were synced, call by call; the event is set by the second."""
    calls, twice = [], threading.Event()

    def record(_, *names):
        calls.append(names)
        if len(calls) == 2:
            twice.set()

    monkeypatch.setattr(sync.Tracker, "sync", record)
    monkeypatch.setattr(follow, "SECONDS", 0.01)
    monkeypatch.chdir(ROOT)
    return calls, twice


def test_syncs_go_on_as_long_as_the_body_and_there_is_one_after_it(synced, monkeypatch):
    calls, twice = synced
    with follow.followed("laptop", ["dense"]):
        assert twice.wait(60)
    assert set(calls) == {("dense",)}
    monkeypatch.setattr(follow, "SECONDS", 3600)
    count = len(calls)
    with pytest.raises(KeyboardInterrupt), follow.followed("laptop", ["dense"]):
        raise KeyboardInterrupt
    assert len(calls) == count + 1


def test_a_failure_is_a_line_and_the_next_sync_may_do(synced, monkeypatch, capsys):
    calls, twice = synced
    record = sync.Tracker.sync

    def fail(self, *names):
        record(self, *names)
        if len(calls) < 3:
            raise UserError("the database is locked")

    monkeypatch.setattr(sync.Tracker, "sync", fail)
    with follow.followed("laptop", []):
        assert twice.wait(60)
    assert capsys.readouterr().err == "stemrepro: MLflow is not up to date: the database is locked\n"


def test_mlflow_that_cannot_be_imported_is_a_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "stemrepro.tracking.sync", None)
    with follow.followed("laptop", []):
        pass
    assert capsys.readouterr().err.startswith("stemrepro: MLflow shows nothing of this training: ")
