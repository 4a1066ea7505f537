"""Jobs in processes of their own: results in order, errors as sentences, nothing left behind."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stemrepro.errors import UserError
from stemrepro.workers import run_jobs


def square(job, report):
    report(1, 0.5, 10.0)
    import torch

    return job * job, torch.get_num_threads(), os.environ["MALLOC_MMAP_THRESHOLD_"]


def wrong(job, report):
    raise UserError(f"job {job} is wrong")


def crash(job, report):
    return 1 / job


def die(job, report):
    os.kill(os.getpid(), signal.SIGKILL)


def linger(job, report):
    Path(job).write_text(str(os.getpid()))
    time.sleep(60)


def work(job, report):
    """When it had the turn: computes for 2.5 seconds and reports ten times a second."""
    spans, worked = [], 0.0
    while worked < 2.5:
        start = time.monotonic()
        time.sleep(0.1)
        spans.append((start, time.monotonic()))
        worked += 0.1
        report(1, 0.5, 0.0)
    return spans


def call(function, jobs):
    # One fork server serves the whole session: it had better have loaded what test_kill.py needs.
    return run_jobs(function, jobs, [f"job {j}" for j in jobs], [1] * len(jobs), 2, 1, "stemrepro.training.train")


def test_results_in_order_with_threads_and_allocator_set():
    assert call(square, [3, 1, 2]) == [(9, 1, "4294967296"), (1, 1, "4294967296"), (4, 1, "4294967296")]


def test_bad_input_in_a_worker_is_its_own_sentence():
    with pytest.raises(UserError, match=r"^job 5 is wrong$"):
        call(wrong, [5])


def test_a_crash_names_the_job_and_shows_the_traceback():
    with pytest.raises(UserError, match=r"job 0 failed:\n(.|\n)*ZeroDivisionError"):
        call(crash, [0])


def test_a_killed_worker_is_named():
    with pytest.raises(UserError, match="job 1 was killed"):
        call(die, [1])


def test_with_one_core_two_jobs_take_turns(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    first, second = call(work, [1, 2])
    order = sorted([(span, 1) for span in first] + [(span, 2) for span in second])
    assert all(a[0][1] <= b[0][0] for a, b in itertools.pairwise(order))  # never both at once
    assert sum(a[1] != b[1] for a, b in itertools.pairwise(order)) >= 3  # and not one after the other


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_parent_leaves_nothing_running(tmp_path):
    script = "from tests.test_workers import *; import sys; call(linger, [sys.argv[1]])"
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "pid")])
    for _ in range(300):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
        time.sleep(0.1)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    for _ in range(100):
        if not alive(child):
            break
        time.sleep(0.1)
    assert not alive(child)
