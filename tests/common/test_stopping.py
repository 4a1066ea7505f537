"""A stop is heard wherever it finds the command."""

import os
import signal
import subprocess
import sys

import pytest

from stemrepro.common.stopping import OF_DVC
from tests.conftest import ROOT

CODE = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background is deaf to it
from stemrepro.common.stopping import hear_stops

class Dying:
    def __del__(self):
        signal.raise_signal(signal.{name})

hear_stops()
thing = Dying()
try:
    del thing
    time.sleep(20)
except KeyboardInterrupt as stop:
    print("stopped by", stop.args[0])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_stop_in_a_finaliser_is_not_dropped(number):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(name=number.name)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout, done.stderr) == (f"stopped by {number}\n", "")


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
