"""How a command is stopped: by Ctrl-C, SIGTERM and SIGHUP alike, together with the processes that it has started.

Only the command itself hears these signals. It ends its processes, which can resume from any moment.
Where the command is killed, Linux kills them.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OF_DVC = "DVC_STAGE"
"""Environment variable that DVC gives the command of a stage."""


def _when_parent_ends(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def _stop(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def _again(lost: Any) -> None:
    """Send a stop again that Python met in a destructor or a weak reference's callback, which lose every exception."""
    if isinstance(lost.exc_value, KeyboardInterrupt) and lost.exc_value.args:
        main = threading.main_thread().ident
        again = threading.Timer(0.1, signal.pthread_kill, (main, lost.exc_value.args[0]))  # when that code has ended
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


def hear_stops() -> None:
    """Turn each of the signals into a KeyboardInterrupt with its number, unless nohup or a shell had switched it off.

    On Linux the command of a stage also hears SIGTERM when DVC is gone; else it would block the next command.
    """
    sys.unraisablehook = _again
    if OF_DVC in os.environ:
        _when_parent_ends(signal.SIGTERM)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


def leave_with_parent() -> None:
    """End this process with its parent, another process of ours.

    SIGTERM ends it at once; Ctrl-C and SIGHUP are for the parent alone.
    """
    _when_parent_ends(signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))  # without it Lightning's would end with 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def started(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run further commands of ours during the body, and wait for them; kill them where the body fails or is stopped."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            line = [sys.executable, "-m", "stemrepro.cli", *command]
            processes.append(subprocess.Popen(line, stdin=subprocess.DEVNULL))
        yield processes
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.wait()
