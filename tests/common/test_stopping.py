"""A stop is heard wherever it finds the command."""

import os
import signal
import subprocess
import sys

import pytest

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
