"""Jobs for workers, in a file that imports little: a worker imports it anew."""

import errno
import os
import signal
import sys
import time
from pathlib import Path

from stemrepro.common.errors import UserError
from stemrepro.common.workers import Job, run_jobs


def square(number, report, plus=0):
    report(1, 0.5, 10.0)
    import torch

    return number * number + plus, torch.get_num_threads(), os.environ["MALLOC_MMAP_THRESHOLD_"]


def wrong(number, report):
    raise UserError(f"job {number} is wrong")


def crash(number, report):
    return 1 / number


def find_no_room(number, report):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.bin")


def unsendable(number, report):
    return lambda: number


def die(number, report):
    os.kill(os.getpid(), number)
    time.sleep(60)


def leave(number, report):
    sys.exit(0)


def hoard(number, report):
    """Asks for more memory than the machine has, first as Python does, then as torch does."""
    import torch

    return bytearray(2**60) if number == 1 else torch.empty(2**60, dtype=torch.uint8)


def nap(run, report):
    """Works for over a second without a report; from when to when."""
    start = time.monotonic()
    time.sleep(1.2)
    return start, time.monotonic()


def device(path, report):
    """Which CUDA device the worker of this job sees; it ends when another has a file of its own next to it."""
    Path(path).touch()
    while len(list(Path(path).parent.iterdir())) < 2:
        time.sleep(0.05)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def state(pid):
    """Of a process, in a letter: T is stopped, Z has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def hang(path, report):
    """Stops, as a debugger or a scheduler that suspends does."""
    Path(path).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_for(path, report):
    """Fails once the other one hangs."""
    while not (Path(path).exists() and (pid := Path(path).read_text()) and state(pid) == "T"):
        time.sleep(0.1)
        report(0, 0.5, 0.0)
    raise UserError("the other one hangs")


def linger(path, report):
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


def march(path, report):
    """Counts up in a file until it is told to stop."""
    for step in range(600):
        Path(path).write_text(f"{os.getpid()} {step}")
        time.sleep(0.05)
        report(step, 0.5, 0.0)


def call(function, runs, preload=("stemrepro.training.fork_server",), **arguments):
    """Results of a job for each run; one fork server serves a whole session, and test_kill.py needs that preload."""
    jobs = [Job(f"tests.common.jobs:{function.__name__}", run, f"job {run}", 1, arguments) for run in runs]
    results = dict(run_jobs(jobs, 2, 1, preload))
    return [results[number] for number in range(len(jobs))]
