"""Jobs in separate processes: results in order, errors as sentences, no process left over."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stemrepro.common import workers
from stemrepro.common.errors import UserError
from stemrepro.common.workers import Job, run_jobs
from tests.common.jobs import call, crash, die, find_no_room, hoard, leave, nap, square, state, unsendable, wrong
from tests.conftest import hear_signals

pytestmark = pytest.mark.slow


def test_results_with_threads_and_allocator_set():
    assert call(square, [3, 1, 2], plus=5) == [(14, 1, "4294967296"), (6, 1, "4294967296"), (9, 1, "4294967296")]


@pytest.mark.parametrize(("visible", "devices"), [("", ["0", "1"]), ("4, 7", ["4", "7"])])
def test_each_worker_sees_a_device_of_its_own(visible, devices, tmp_path):
    script = (
        "import os, sys\n"
        "from stemrepro.common import workers\n"
        "from stemrepro.common.workers import Job, run_jobs\n"
        "workers.cores = lambda: 2\n"
        "jobs = [Job('tests.common.jobs:device', path, path, 1) for path in sys.argv[1:]]\n"
        "print(sorted(device for _, device in run_jobs(jobs, 2, 1, ['tests.common.eight_devices'])))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    command = [sys.executable, "-c", script, str(tmp_path / "0"), str(tmp_path / "1")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == str(devices)


def test_results_come_as_jobs_end():
    """A stage that was killed keeps what was scored until then."""
    jobs = [Job("tests.common.jobs:square", 1, "quick", 1), Job("tests.common.jobs:crash", 0, "bad", 1)]
    results = run_jobs(jobs, 1, 1, ["stemrepro.training.train"])
    assert next(results)[0] == 0
    with pytest.raises(UserError, match="bad failed"):
        next(results)


@pytest.mark.parametrize(
    ("function", "run", "words"),
    [
        (wrong, 5, r"^job 5 is wrong$"),
        (find_no_room, 1, r"^job 1: no room left on the disk \(a\.bin\)"),
        (crash, 0, r"job 0 failed:\n(.|\n)*ZeroDivisionError"),
        (unsendable, 3, r"job 3 failed: .*pickle"),
        (die, signal.SIGKILL, "^a worker was killed while these ran: job 9"),
        (die, signal.SIGTERM, "^a worker was killed while these ran: job 15"),
        (leave, 0, r"job 0 failed:\n(.|\n)*SystemExit: 0"),  # with code 0, as Lightning's handler of SIGTERM did
        (hoard, 1, "^no memory was left for job 1 "),
        (hoard, 2, "^no memory was left for job 2 "),
    ],
)
def test_what_goes_wrong_in_a_worker_names_its_job(function, run, words):
    with pytest.raises(UserError, match=words):
        call(function, [int(run)])


def test_a_worker_that_hangs_ends_with_the_others(tmp_path):
    path = str(tmp_path / "pid")
    jobs = [Job(f"tests.common.jobs:{name}", path, name, 1) for name in ("hang", "wait_for")]
    with pytest.raises(UserError, match=r"^the other one hangs$"):
        dict(run_jobs(jobs, 2, 1, ["stemrepro.training.train"]))
    assert not alive(Path(path).read_text())


def test_no_more_jobs_run_at_a_time_than_there_are_cores_for(monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 1)
    (_, first_end), (second_start, _) = sorted(call(nap, [1, 2]))
    assert first_end <= second_start


@pytest.mark.parametrize(("quota", "count"), [("max 100000", 3), ("150000 100000", 2), ("50000 100000", 1), ("", 3)])
def test_cores_are_those_of_the_job_and_the_container(tmp_path, monkeypatch, quota, count):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6}, raising=False)
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    for place in (tmp_path / "cpu.max", *([tmp_path / "nowhere"] if count == 3 else [])):
        monkeypatch.setattr(workers, "QUOTA", place)
        assert workers.cores() == count


def alive(pid):
    return state(pid) != "Z"


def test_a_killed_parent_leaves_nothing_running(tmp_path):
    script = "from tests.common.jobs import *; import sys; call(linger, [sys.argv[1]], 'torch')"
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
    script = "from tests.common.jobs import *; import sys; call(march, sys.argv[1:], 'torch')"
    paths = [tmp_path / "one", tmp_path / "two"]
    parent = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, paths)],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )
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
    script = "from tests.common.jobs import *; call(square, [3], 'torch')"
    robustness = str(tmp_path / "compiled")  # torch makes a folder for it when it is imported
    environment = os.environ | {"TMPDIR": str(place), "TORCHINDUCTOR_CACHE_DIR": robustness}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []
