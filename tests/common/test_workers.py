"""Jobs in separate processes: results in order, errors as sentences, no process left over."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stemrepro.common.errors import UserError
from stemrepro.common.stopping import STOPS, hear_stops, stops_held
from stemrepro.common.workers import Job, run_jobs
from tests.conftest import hear_ctrl_c

pytestmark = pytest.mark.slow


def square(number, report, plus=0):
    report(1, 0.5, 10.0)
    import torch

    return number * number + plus, torch.get_num_threads(), os.environ["MALLOC_MMAP_THRESHOLD_"]


def wrong(number, report):
    raise UserError(f"job {number} is wrong")


def crash(number, report):
    return 1 / number


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
    """Works for two seconds without a report; from when to when."""
    start = time.monotonic()
    time.sleep(2)
    return start, time.monotonic()


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


def call(function, runs, **arguments):
    jobs = [Job(f"tests.common.test_workers:{function.__name__}", run, f"job {run}", 1, arguments) for run in runs]
    # One fork server serves the whole session: it had better have loaded what test_kill.py needs.
    results = dict(run_jobs(jobs, 2, 1, ["stemrepro.training.train"]))
    return [results[number] for number in range(len(jobs))]


def test_results_with_threads_and_allocator_set():
    assert call(square, [3, 1, 2], plus=5) == [(14, 1, "4294967296"), (6, 1, "4294967296"), (9, 1, "4294967296")]


def test_results_come_as_jobs_end():
    """A stage that was killed keeps what was scored until then."""
    jobs = [Job("tests.common.test_workers:square", 1, "quick", 1), Job("tests.common.test_workers:crash", 0, "bad", 1)]
    results = run_jobs(jobs, 1, 1, ["stemrepro.training.train"])
    assert next(results)[0] == 0
    with pytest.raises(UserError, match="bad failed"):
        next(results)


def test_bad_input_in_a_worker_is_its_own_sentence():
    with pytest.raises(UserError, match=r"^job 5 is wrong$"):
        call(wrong, [5])


def test_a_crash_names_the_job_and_shows_the_traceback():
    with pytest.raises(UserError, match=r"job 0 failed:\n(.|\n)*ZeroDivisionError"):
        call(crash, [0])


def test_a_result_that_cannot_be_sent_back_is_named():
    with pytest.raises(UserError, match=r"job 3 failed: .*pickle"):
        call(unsendable, [3])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_named(number):
    with pytest.raises(UserError, match=rf"^a worker was killed while these ran: job {number}; run again, they resume"):
        call(die, [number])


def test_a_worker_that_exits_has_failed():
    """With code 0, as Lightning's handler of SIGTERM did."""
    with pytest.raises(UserError, match=r"job 0 failed:\n(.|\n)*SystemExit: 0"):
        call(leave, [0])


@pytest.mark.parametrize("number", [1, 2])
def test_too_little_memory_is_one_sentence(number):
    with pytest.raises(UserError, match=rf"^no memory was left for job {number} .*; fewer 'workers' .*$"):
        call(hoard, [number])


def test_a_worker_that_hangs_ends_with_the_others(tmp_path):
    path = str(tmp_path / "pid")
    jobs = [Job(f"tests.common.test_workers:{name}", path, name, 1) for name in ("hang", "wait_for")]
    with pytest.raises(UserError, match=r"^the other one hangs$"):
        dict(run_jobs(jobs, 2, 1, ["stemrepro.training.train"]))
    assert not alive(Path(path).read_text())


def test_workers_that_say_nothing_are_named(monkeypatch):
    monkeypatch.setattr("stemrepro.common.workers.SILENCE", 0.1)
    with pytest.warns(UserWarning, match=r"^no word for .* of job 1; if it hangs, stop with Ctrl-C and run again"):
        call(nap, [1])


def test_no_more_jobs_run_at_a_time_than_there_are_cores_for(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    (_, first_end), (second_start, _) = sorted(call(nap, [1, 2]))
    assert first_end <= second_start


def state(pid):
    """Of a process, in a letter: T is stopped, Z has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def alive(pid):
    return state(pid) != "Z"


def test_a_killed_parent_leaves_nothing_running(tmp_path):
    script = "from tests.common.test_workers import *; import sys; call(linger, [sys.argv[1]])"
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "pid")])
    for _ in range(3000):
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


def test_ctrl_c_stops_the_workers_at_once(tmp_path):
    """The whole terminal gets the signal: workers leave it to the parent, which stops them at their next report."""
    script = "from tests.common.test_workers import *; import sys; call(march, sys.argv[1:])"
    paths = [tmp_path / "one", tmp_path / "two"]
    parent = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, paths)], start_new_session=True, stderr=subprocess.PIPE, text=True,
        preexec_fn=hear_ctrl_c,
    )  # fmt: skip
    for _ in range(3000):
        if all(path.exists() and path.read_text() for path in paths):
            break
        time.sleep(0.1)
    pids = [int(path.read_text().split()[0]) for path in paths]
    os.killpg(parent.pid, signal.SIGINT)
    _, shown = parent.communicate(timeout=60)
    assert shown.rstrip().endswith("KeyboardInterrupt")  # the command line makes a sentence of it
    assert not any(map(alive, pids))


def test_a_long_tmpdir_is_no_obstacle(tmp_path):
    """Paths of sockets end at some 100 characters."""
    place = tmp_path / ("x" * 120)
    place.mkdir()
    script = "from tests.common.test_workers import *; call(square, [3])"
    robustness = str(tmp_path / "compiled")  # torch makes a folder for it when it is imported
    environment = os.environ | {"TMPDIR": str(place), "TORCHINDUCTOR_CACHE_DIR": robustness}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []


def start_and_hear(number, children):
    """Starts a process that sends itself a signal, and hears it itself meanwhile."""
    script = f"import signal; signal.raise_signal({number}); print('deaf')"
    with stops_held():
        signal.pthread_kill(
            threading.get_ident(), number
        )  # of this thread: a signal to another one would be heard at another time
        children.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))


@pytest.fixture(params=STOPS)
def heard(request):
    """A signal that is a KeyboardInterrupt, as in commands; a suite in a shell's background ignores Ctrl-C."""
    before = {number: signal.getsignal(number) for number in STOPS}
    signal.signal(request.param, signal.SIG_DFL)
    hear_stops()
    yield request.param
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_while_processes_start_waits_until_they_have_and_is_not_theirs(heard):
    children, hears = [], signal.getsignal(heard)
    with pytest.raises(KeyboardInterrupt) as stop:
        start_and_hear(heard, children)
    assert stop.value.args == (heard,)
    assert children[0].communicate()[0] == "deaf\n"
    assert signal.getsignal(heard) is hears
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(STOPS)


def test_what_nohup_switched_off_stays_off(heard):
    signal.signal(heard, signal.SIG_IGN)
    hear_stops()
    assert signal.getsignal(heard) == signal.SIG_IGN
