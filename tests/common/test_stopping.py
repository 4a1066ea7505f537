"""A stop is heard wherever it finds the command."""

import os
import signal
import subprocess
import sys

import pytest

from stemrepro.common.stopping import OF_DVC, hear_stops
from tests.conftest import ROOT

STAGE = """
import time
from stemrepro.common.stopping import hear_stops

hear_stops()
try:
    print("hears", flush=True)
    time.sleep(20)
except KeyboardInterrupt as stop:
    print("stopped by", stop.args[0])
"""

DESTRUCTOR = """
import signal
import time
from stemrepro.common.stopping import hear_stops

class Closed:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

hear_stops()
try:
    Closed()
    time.sleep(20)
except KeyboardInterrupt as stop:
    print("stopped by", stop.args[0])
"""


def test_a_stop_that_meets_a_destructor_is_not_lost():
    """Python drops an exception there; SQLAlchemy, for one, has such callbacks at any moment."""
    shown = subprocess.run([sys.executable, "-c", DESTRUCTOR], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (shown.stdout, shown.stderr) == (f"stopped by {signal.SIGTERM}\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't tell a process that its parent is gone")
def test_a_stage_is_stopped_when_dvc_is_killed():
    """Else it goes on, and the next `dvc repro` finds its runs taken."""
    parent = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    dvc = subprocess.Popen(
        [sys.executable, "-c", parent, sys.executable, "-c", STAGE],
        env=os.environ | {"PYTHONPATH": str(ROOT), OF_DVC: "train@tiny"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert dvc.stdout.readline() == "hears\n"
    dvc.kill()
    assert dvc.communicate()[0] == f"stopped by {signal.SIGTERM}\n"


def test_what_nohup_switched_off_stays_off(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    others = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        hear_stops()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        for number, handler in {**others, signal.SIGHUP: before}.items():
            signal.signal(number, handler)
