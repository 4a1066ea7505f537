"""Functions that run over several jobs in separate processes, after one import.

The processes come from a fork server that has imported what they need, so that start-up is paid once. Allocator
thresholds and thread counts are set here, before the server starts, because glibc reads them at process start only:
keeping freed pages is worth 6% of a step at the laptop scale and more where tensors are larger.
"""

import math
import multiprocessing
import os
import pkgutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import util
from multiprocessing.sharedctypes import Synchronized
from queue import Empty

from stemrepro.common.errors import UserError
from stemrepro.common.progress import Course, duration
from stemrepro.common.stopping import leave_with_parent, stops_held

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "TQDM_DISABLE": "1",  # lm-eval's bars between ours
}
LONGEST_PLACE, SHORT_PLACES = 70, ("/tmp", "/var/tmp", "/dev/shm")
"""A socket's path may have some 100 characters; multiprocessing adds 32 to the folder's."""
NO_MEMORY = ("can't allocate memory", "out of memory")
"""What torch's errors say, on the CPU and on a GPU."""
SILENCE = 600.0
"""Seconds without a report of any worker before a warning: a worker that hangs looks like one that works."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
AGAIN = "run again, they resume; fewer 'workers' of the scale (recipes/scales/) take less memory"


@dataclass(frozen=True)
class Job:
    """One call of a function in a worker: `function(run, report, **arguments)`.

    Attributes:
        function: "module:function", imported in the worker alone, so that the parent needs no torch.
        name: what it is called while it runs.
        total: its length; `report(done, loss or nan, tokens per second)` tells its progress.
        cost: of the whole job compared with the others, for the time that is left.
        resumes: whether it may begin in its middle.
    """

    function: str
    run: object
    name: str
    total: int
    arguments: dict = field(default_factory=dict)
    cost: float = 1.0
    resumes: bool = False


_shared: dict = {}
"""What a worker has from its parent: the queue of reports."""


def _leave_with_parent() -> None:
    """End this process when its parent is gone, so that a killed pipeline leaves nothing running."""
    multiprocessing.parent_process().join()
    os._exit(1)


def leave_when_parent_ends() -> None:
    """Watch the parent of this process, and end with it."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def device_of(slot: int, count: int, visible: str | None) -> str | None:
    """Return the one CUDA device that a worker sees, as CUDA_VISIBLE_DEVICES names it; workers take turns.

    Args:
        slot: number of the worker, from 0.
        count: devices that torch sees.
        visible: CUDA_VISIBLE_DEVICES so far, None where it isn't set.
    """
    if count < 1:
        return visible
    names = [str(number) for number in range(count)] if visible is None else visible.split(",")
    return names[slot % count].strip()


def _begin(queue: object, threads: int, slots: Synchronized) -> None:
    leave_with_parent()
    leave_when_parent_ends()
    _shared.update(queue=queue)
    torch = sys.modules.get("torch")
    if torch is None:  # jobs that need it preload it; the others needn't wait for it
        return
    torch.set_num_threads(threads)
    with slots.get_lock():
        slot = slots.value
        slots.value += 1
    if device := device_of(slot, torch.cuda.device_count(), os.environ.get(VISIBLE)):
        os.environ[VISIBLE] = device  # in time: counting devices doesn't start CUDA


def _work(number: int, job: Job) -> object:
    queue = _shared["queue"]
    queue.put((number, None))

    def report(*values: float) -> None:
        queue.put((number, values))

    try:
        return pkgutil.resolve_name(job.function)(job.run, report, **job.arguments)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # code of the user may exit, even with 0
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            raise UserError(f"no memory was left for {job.name} and those that ran with it; {AGAIN}") from error
        raise UserError(f"{job.name} failed:\n{traceback.format_exc()}") from error


def show(course: Course, number: int, done: int, loss: float, speed: float) -> None:
    """Pass one report of a job on to a course."""
    pace = f", {speed:,.0f} tokens/s" if speed else ""
    course.report(number, done, "" if math.isnan(loss) else f"loss {loss:.3f}{pace}")


def _take(queue: object, course: Course) -> bool:
    """Pass the reports of workers on to a course; return whether there were any."""
    heard = False
    while True:
        try:
            number, values = queue.get_nowait()
        except Empty:
            return heard
        heard = True
        if values is None:
            course.begin(number)
            continue
        show(course, number, *values)


def _keep_sockets_short() -> None:
    """Have multiprocessing put its socket in another folder where TMPDIR's path is too long.

    Raises:
        UserError: no folder with a short path may be written.
    """
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= LONGEST_PLACE:
        return
    others = [place for place in SHORT_PLACES if os.access(place, os.W_OK | os.X_OK)]
    if not others:
        raise UserError(
            f"TMPDIR {folder} is too long for a socket in it; "
            f"set TMPDIR to a folder of {LONGEST_PLACE} characters or fewer"
        )
    tempfile.tempdir, before = others[0], tempfile.tempdir
    util.get_temp_dir()  # makes it there, and keeps it
    tempfile.tempdir = before


def fork_server(threads: int, *preload: str) -> multiprocessing.context.ForkServerContext:
    """Return the context of a fork server with the allocator's thresholds and imports in their order.

    The server starts with its first process. All later processes come from that first server, whoever calls.

    Raises:
        UserError: see `_keep_sockets_short`.
    """
    _keep_sockets_short()
    os.environ.update(ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)})
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stemrepro.common.fork_server", *preload])
    return context


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
    context = fork_server(threads, *preload)
    with stops_held():  # this starts multiprocessing's resource tracker, which is to outlive a SIGHUP
        queue, slots = context.Queue(), context.Value("i", 0)
    others = multiprocessing.active_children()
    side = max(1, min(workers, len(jobs), (os.cpu_count() or 1) // threads))
    course = Course(what, [*jobs, *later], done)
    pool = ProcessPoolExecutor(side, context, _begin, (queue, threads, slots))
    with closing(course):
        try:
            numbers: dict[Future, int] = {}
            with stops_held():
                numbers |= {pool.submit(_work, number, job): number for number, job in enumerate(jobs)}
            silent_since = time.monotonic()
            while numbers:
                ended, _ = wait(numbers, timeout=0.5, return_when=FIRST_COMPLETED)
                course.draw()
                if _take(queue, course) or ended:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > SILENCE and course.running:
                    names = ", ".join(job.name for n, job in enumerate(jobs) if n in course.running)
                    warnings.warn(
                        f"no word for {duration(SILENCE)} of {names}; "
                        f"if it hangs, stop with Ctrl-C and run again: what is done is kept",
                        stacklevel=1,
                    )
                    silent_since = math.inf
                for future in sorted(ended, key=lambda future: future.exception() is not None):  # results are kept
                    number = numbers.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool as error:
                        running = [job.name for n, job in enumerate(jobs) if n in course.running]
                        names = ", ".join(running) or jobs[number].name
                        raise UserError(f"a worker was killed while these ran: {names}; {AGAIN}") from error
                    except UserError:
                        raise
                    except Exception as error:  # for instance a result that can't be sent back
                        raise UserError(f"{jobs[number].name} failed: {type(error).__name__}: {error}") from error
                    course.end(number)
                    yield number, result
        except BaseException:  # also one of the caller
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()  # also where it hangs; it resumes from its last checkpoint
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
