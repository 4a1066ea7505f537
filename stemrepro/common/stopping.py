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
from multiprocessing import resource_tracker

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PARENT = "STEMREPRO_PARENT"
"""Environment variable of a command that another one started: that one's process id."""
PR_SET_PDEATHSIG = 1
OF_DVC = "DVC_STAGE"
"""Environment variable that DVC gives the command of a stage."""


def _stop(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def _heed_dropped(dropped: "sys.UnraisableHookArgs") -> None:
    """Raise a stop anew that came in a finaliser or in a weak reference's callback, where Python drops exceptions."""
    if isinstance(dropped.exc_value, KeyboardInterrupt) and dropped.exc_value.args:
        threading.Timer(0.05, os.kill, (os.getpid(), *dropped.exc_value.args)).start()
    else:
        sys.__unraisablehook__(dropped)


def hear_stops() -> None:
    """Turn each of the signals into a KeyboardInterrupt with its number, unless nohup or a shell had switched it off.

    On Linux the command of a stage also hears SIGTERM when DVC is gone; else it would block the next command.
    """
    if sys.platform == "linux" and OF_DVC in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.unraisablehook = _heed_dropped


@contextmanager
def stops_held() -> Iterator[None]:
    """Hold the signals back until the body is done, so that no process is left half started.

    Processes that start in the body don't hear the signals: this process decides about them.
    """
    heard: list[int] = []
    before = {number: handler for number in STOPS if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: heard.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # inherited; handlers aren't
    resource_tracker.ensure_running()  # where it starts it takes back a part of the line above
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            raise KeyboardInterrupt(heard[0])


@contextmanager
def started(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run further commands of ours during the body; their input ends after it.

    They are waited for, and killed where the body fails or is stopped.
    """
    processes: list[subprocess.Popen[bytes]] = []
    environment = os.environ | {PARENT: str(os.getpid())}
    try:
        with stops_held():
            for command in commands:
                line = [sys.executable, "-m", "stemrepro.cli", *command]
                processes.append(subprocess.Popen(line, stdin=subprocess.PIPE, env=environment))
        yield processes
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.communicate()


def leave_with_parent() -> None:
    """End this process with its parent, another process of ours.

    SIGTERM ends it at once; Ctrl-C and SIGHUP are for the parent alone.
    On Linux it is killed as soon as the parent is gone.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if (parent := os.environ.pop(PARENT, None)) and os.getppid() != int(parent):  # it was gone before
            os._exit(1)
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))  # without it Lightning's would end with 0
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
