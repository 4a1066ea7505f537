"""How a command is stopped: Ctrl-C, SIGTERM and SIGHUP end it in the same orderly way, and the processes it has started end with it.

Only the command itself hears these signals; it ends the others, which can go on from any moment. Where it is killed, Linux kills them.
"""

import ctypes
import os
import signal
import subprocess
import sys
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


def hear_stops() -> None:
    """From now on each of the signals is a KeyboardInterrupt with its number, but for those that nohup or a shell had switched off.

    On Linux the command of a stage also hears SIGTERM when DVC is gone: else it would go on, and be in the way of the next one.
    """
    if sys.platform == "linux" and OF_DVC in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


@contextmanager
def stops_held() -> Iterator[None]:
    """Hold the signals back until the body is done, so that no process is left half started, and keeps them from those that start in
    it: what happens then is for this one to say.
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
def started(commands: list[list[str]]) -> Iterator[list[subprocess.Popen]]:
    """Further commands of ours beside the body, whose input ends behind it. They are waited for; where the body fails or is stopped they
    are killed.
    """
    processes: list[subprocess.Popen] = []
    environment = os.environ | {PARENT: str(os.getpid())}
    try:
        with stops_held():
            for command in commands:
                asked = [sys.executable, "-m", "stemrepro.cli", *command]
                processes.append(subprocess.Popen(asked, stdin=subprocess.PIPE, env=environment))
        yield processes
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.communicate()


def leave_with_parent() -> None:
    """Called by a process that another one of ours has started: SIGTERM ends it at once, Ctrl-C and SIGHUP are for that one alone, and
    on Linux it is killed as soon as that one is gone, whatever it does.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if (parent := os.environ.pop(PARENT, None)) and os.getppid() != int(parent):  # it was gone before
            os._exit(1)
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))  # without it Lightning's would end with 0
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
