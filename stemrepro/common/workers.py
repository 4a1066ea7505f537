"""Functions that run over several jobs in separate processes, after one import.

The processes come from a fork server that has imported what they need, so that start-up is paid once. Allocator
thresholds and thread counts are set here, before the server starts, because glibc reads them at process start only:
keeping freed pages is worth 6% of a step at the laptop scale and more where tensors are larger. The pad lets the heap
grow in large pieces: without it the system took a third of two workers' time (AMD EPYC with AVX2, 2026-11-29).
"""

import math
import multiprocessing
import os
import pkgutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker, util
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from queue import Empty
from typing import Any

from stemrepro.common.errors import UserError, of_system
from stemrepro.common.progress import Course
from stemrepro.common.stopping import leave_with_parent

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
    "TQDM_DISABLE": "1",  # lm-eval's bars between ours
}
LONGEST_PLACE = 70
"""A socket's path may have some 100 characters; multiprocessing adds 32 to the folder's."""
NO_MEMORY = ("can't allocate memory", "out of memory")
"""What torch's errors say, on the CPU and on a GPU."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux's file with the microseconds of processors that a container has in so many microseconds."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
AGAIN = "run again, they resume; fewer 'workers' of the scale (recipes/scales/) take less memory"


@dataclass(frozen=True)
class Job:
    """One call of a function in a worker: `function(run, report, **arguments)`.

    Attributes:
        function: "module:function", imported in the worker alone.
        name: what it is called while it runs.
        total: its length; `report(done, loss or nan, tokens per second)` tells its progress.
        cost: of the whole job compared with the others, for the time that is left.
        resumes: whether it may begin in its middle.
    """

    function: str
    run: Any
    name: str
    total: int
    arguments: dict[str, Any] = field(default_factory=dict)
    cost: float = 1.0
    resumes: bool = False


_shared: dict[str, Any] = {}
"""What a worker has from its parent: the queue of reports."""


def cores() -> int:
    """Return how many cores this process may use: a job's or a container's, of all that the machine has."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # ValueError where the share of time is "max"
        quota, period = map(int, QUOTA.read_text(encoding="utf-8").split())
        count = min(count, math.ceil(quota / period))
    return count


def _leave_when_parent_ends() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()  # also where the system can't tell
    os._exit(1)


def see_one_device(worker: int) -> None:
    """Hide all of the machine's CUDA devices but one from this process; workers take turns by their number."""
    import torch

    if count := torch.cuda.device_count():  # which doesn't start CUDA
        names = os.environ[VISIBLE].split(",") if VISIBLE in os.environ else list(map(str, range(count)))
        os.environ[VISIBLE] = names[worker % count].strip()


def _begin(queue: object, threads: int, slots: "Synchronized[int]") -> None:
    leave_with_parent()
    threading.Thread(target=_leave_when_parent_ends, daemon=True).start()
    _shared.update(queue=queue)
    torch = sys.modules.get("torch")
    if torch is None:  # jobs that need it preload it; the others needn't wait for it
        return
    torch.set_num_threads(threads)
    with slots.get_lock():
        slot, slots.value = slots.value, slots.value + 1
    see_one_device(slot)


def _work(number: int, job: Job) -> object:
    queue = _shared["queue"]
    queue.put((number, 0, math.nan, 0.0))
    try:
        return pkgutil.resolve_name(job.function)(
            job.run, lambda *values: queue.put((number, *values)), **job.arguments
        )
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # code of the user may exit, even with 0
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            raise UserError(f"no memory was left for {job.name} and those that ran with it; {AGAIN}") from error
        if isinstance(error, OSError) and (sentence := of_system(error)):
            raise UserError(f"{job.name}: {sentence}") from error
        raise UserError(f"{job.name} failed:\n{traceback.format_exc()}") from error


def show(course: Course, number: int, done: int, loss: float, speed: float) -> None:
    """Pass one report of a job on to a course."""
    pace = f", {speed:,.0f} tokens/s" if speed else ""
    course.report(number, done, "" if math.isnan(loss) else f"loss {loss:.3f}{pace}")


def fork_server(threads: int, *preload: str) -> multiprocessing.context.ForkServerContext:
    """Return the context of a fork server with the allocator's thresholds and imports in their order.

    The server starts with its first process. All later processes come from that first server, whoever calls.
    """
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_PLACE:  # no socket can be made there
        tempfile.tempdir, before = "/tmp", tempfile.tempdir
        util.get_temp_dir()  # makes it there, and keeps it
        tempfile.tempdir = before
    os.environ.update(ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)})
    if threading.current_thread() is threading.main_thread():
        heard = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which multiprocessing's own helper inherits
        resource_tracker.ensure_running()
        signal.signal(signal.SIGHUP, heard)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stemrepro.common.fork_server", *preload])
    return context


def _result(future: Future[Any], job: Job, course: Course) -> object:
    try:
        return future.result()
    except UserError:
        raise
    except BrokenProcessPool as error:
        names = ", ".join(course.running()) or job.name
        raise UserError(f"a worker was killed while these ran: {names}; {AGAIN}") from error
    except Exception as error:  # for instance a result that can't be sent back
        raise UserError(f"{job.name} failed: {type(error).__name__}: {error}") from error


def run_jobs(
    jobs: list[Job],
    workers: int,
    threads: int,
    preload: Sequence[str],
    what: str = "jobs",
    done: int = 0,
    later: Sequence[Job] = (),
) -> Iterator[tuple[int, object]]:
    """Run jobs, `workers` at a time or as many as there are cores for, and yield (number, result) of each as it ends.

    Each worker with torch sees one of the machine's CUDA devices.

    Args:
        threads: torch threads in each worker.
        preload: modules that the fork server imports beforehand; torch is one of them where jobs need it.
        what: names the jobs, in a word, for the progress bar.
        done: jobs of the same kind that had nothing left to do.
        later: jobs that another call will run, for the time that is left.

    Raises:
        UserError: raised by a job, or a crash with its traceback; the other jobs are ended.
    """
    if not jobs:
        return
    context, others = fork_server(threads, *preload), multiprocessing.active_children()
    queue, slots = context.Queue(), context.Value("i", 0)
    side = max(1, min(workers, len(jobs), cores() // threads))
    pool = ProcessPoolExecutor(side, context, _begin, (queue, threads, slots))
    with closing(Course(what, [*jobs, *later], done)) as course:
        try:
            numbers = {pool.submit(_work, number, job): number for number, job in enumerate(jobs)}
            while numbers:
                ended, _ = wait(numbers, timeout=0.5, return_when=FIRST_COMPLETED)
                with suppress(Empty):
                    while True:
                        show(course, *queue.get_nowait())
                for future in sorted(ended, key=lambda future: future.exception() is not None):  # results are kept
                    number = numbers.pop(future)
                    result = _result(future, jobs[number], course)
                    course.end(number)
                    yield number, result
        except BaseException:  # also one of the caller
            for process in {*multiprocessing.active_children()} - {*others}:
                process.kill()  # also where it hangs; it resumes from its last checkpoint
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
