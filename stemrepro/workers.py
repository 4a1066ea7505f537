"""Runs a function over several jobs in processes of their own, with progress, after one import.

The processes come from a fork server that has imported what they need, so that start-up is paid once. Allocator
thresholds and thread counts are set here, before the server starts, because glibc reads them at process start only:
keeping freed pages is worth 6% of a step at the laptop scale (docs/LOG.md) and more where tensors are larger.

More processes than cores pack jobs well, as all end together, but share caches badly. So no more compute at a time than there
are cores for; the others wait for their turn, which is passed on every second.
"""

import math
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from queue import Empty

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stemrepro.errors import UserError

ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
}
TURN_SECONDS = 1.0


def _leave_with_parent() -> None:
    """Ends this process when its parent is gone, so that a killed pipeline leaves nothing running."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _child(function: Callable, job: object, number: int, queue: object, threads: int, turn: object) -> None:
    import torch

    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    turn.acquire()
    since = time.monotonic()

    def report(*values: float) -> None:
        nonlocal since
        queue.put(("progress", number, values))
        if time.monotonic() - since > TURN_SECONDS:
            turn.release()
            time.sleep(0.001)  # or this process would have the turn again before one that waits wakes up
            turn.acquire()
            since = time.monotonic()

    try:
        queue.put(("result", number, function(job, report)))
    except UserError as error:
        queue.put(("error", number, str(error)))
    except BaseException:
        queue.put(("crash", number, traceback.format_exc()))
    finally:
        turn.release()


def run_jobs(
    function: Callable, jobs: list, names: list[str], totals: list[int], workers: int, threads: int, preload: str
) -> list:
    """Calls `function(job, report)` for every job, `workers` at a time, and returns the results in order.

    Args:
        function: a module-level function; `report(done, loss or nan, tokens per second)` moves its bar.
        jobs: what to call it with (pickled).
        names: labels of the bars.
        totals: length of each bar.
        workers: processes at a time.
        threads: torch threads in each.
        preload: module that the fork server imports beforehand.

    Raises:
        UserError: a job's own, or a crash with its traceback; the other jobs are ended.
    """
    os.environ.update(ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)})
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    queue, results, running, waiting = context.Queue(), {}, {}, list(enumerate(jobs))
    turn = context.Semaphore(max(1, (os.cpu_count() or 1) // threads))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    console = Console(file=sys.stderr)
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
            everything = progress.add_task("all", total=len(jobs), note="")
            bars = [progress.add_task(n, total=t, note="", visible=False) for n, t in zip(names, totals, strict=True)]
            while waiting or running:
                while waiting and len(running) < workers:
                    number, job = waiting.pop(0)
                    arguments = (function, job, number, queue, threads, turn)
                    running[number] = context.Process(target=_child, args=arguments)
                    running[number].start()
                    progress.update(bars[number], visible=True)
                try:
                    kind, number, value = queue.get(timeout=1)
                except Empty:
                    dead = [n for n, p in running.items() if not p.is_alive() and p.exitcode]
                    if dead:
                        raise UserError(
                            f"{names[dead[0]]} was killed (exit code {running[dead[0]].exitcode})"
                        ) from None
                    continue
                if kind == "progress":
                    done, loss, speed = value
                    pace = f"  {speed:,.0f} tokens/s" if speed else ""
                    progress.update(
                        bars[number], completed=done, note="" if math.isnan(loss) else f"loss {loss:.3f}{pace}"
                    )
                elif kind == "result":
                    results[number] = value
                    running.pop(number).join()
                    progress.update(bars[number], visible=False)
                    progress.advance(everything)
                elif kind == "error":
                    raise UserError(value)
                else:
                    raise UserError(f"{names[number]} failed:\n{value}")
    finally:
        for process in running.values():
            process.terminate()
    return [results[number] for number in range(len(jobs))]
