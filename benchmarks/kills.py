"""Kills a training with SIGKILL again and again and looks at what is left.

    stemrepro data --scale smoke
    python -m benchmarks.kills --scale smoke --arm stem-full --kills 50

Every checkpoint must be readable, few steps lost, and the end the same bytes as of a run that nothing happened to. Half
of the kills come at a random moment, half while a checkpoint is being written. Prints what was lost.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pandas as pd

from benchmarks.runs import run_at
from stemrepro.common.progress import track
from stemrepro.common.provenance import provenance
from stemrepro.common.workers import fork_server
from stemrepro.measures.catalog import load
from stemrepro.training.run import Run

MODULE = "stemrepro.training.fork_server"


def victim(run: Run, pipe: Connection, threads: int, die_at_write: int | None, hold_after: int | None) -> None:
    """Train in another process and report every step; die at the nth file write when requested.

    A write is temporary file, fsync, rename: it dies between the last two, where a half-made file would be left. With
    `hold_after` it waits after that step to be killed, so that it can't finish first.
    """
    import torch

    from stemrepro.training import callbacks
    from stemrepro.training.train import train

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    callbacks.time = type("Clock", (), {"monotonic": iter(range(10**9)).__next__})  # so that every step is reported
    if die_at_write is not None:
        rename, left = os.replace, iter(range(die_at_write, -1, -1))

        def deadly(source: str, target: str) -> None:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target)

        os.replace = deadly

    def report(step: int, *_: float) -> None:
        pipe.send(step)
        if step == hold_after:
            signal.pause()

    train(run, report)


def start(
    run: Run, threads: int = 1, die_at_write: int | None = None, hold_after: int | None = None
) -> tuple[multiprocessing.Process, Connection]:
    """Start a victim; its steps come through the pipe."""
    context = fork_server(threads, MODULE)
    parent_end, child_end = context.Pipe(duplex=False)
    process = context.Process(target=victim, args=(run, child_end, threads, die_at_write, hold_after), daemon=True)
    process.start()
    child_end.close()
    return process, parent_end


def last_step(pipe: Connection) -> int:
    """Return the last step that a dead process had finished (0 for none)."""
    step = 0
    try:
        while True:
            step = pipe.recv()
    except (EOFError, ConnectionResetError):
        return step


def finish(run: Run, threads: int = 1) -> None:
    """Train a run to its end."""
    process, pipe = start(run, threads)
    last_step(pipe)
    process.join()
    assert process.exitcode == 0, f"{run.folder} did not finish"


def look(folder: Path) -> tuple[int, int, int]:
    """Return what lies in a checkpoint folder: unreadable files, files without a hash, and the newest good step.

    Unreadable are files with a recorded hash that are not what was written, or can't be loaded. The step is that of the
    newest good checkpoint, 0 for none.
    """
    from stemrepro.training.checkpoint import AtomicCheckpointIO, newest

    checkpoints = sorted(folder.glob("step*.ckpt"))
    hashed = [path for path in checkpoints if Path(f"{path}.sha256").exists()]
    unreadable = 0
    for path in hashed:
        try:
            AtomicCheckpointIO().load_checkpoint(path)
        except Exception:  # of whatever kind: this is what is being counted
            unreadable += 1
    good = newest(folder)
    return unreadable, len(checkpoints) - len(hashed), int(good.stem.removeprefix("step")) if good else 0


def writing(folder: Path) -> bool:
    """Return true while a checkpoint's temporary file lies there."""
    try:
        return any(name.startswith(".step") for name in os.listdir(folder))
    except FileNotFoundError:
        return False


def kill_once(run: Run, during_save: bool, rng: random.Random) -> dict | None:
    """Start or resume the run, kill it, and return what was lost; None when it finished first."""
    process, pipe = start(run)
    begun = look(run.folder / "resume")[2]
    died = begun
    stop = rng.randint(begun + 1, run.training.steps - 1)
    while process.is_alive():
        if during_save and writing(run.folder / "resume"):
            break
        if pipe.poll(0 if during_save else 0.001):
            try:
                died = pipe.recv()
            except EOFError:
                break
            if not during_save and died >= stop:
                time.sleep(rng.random() * 0.02)
                break
    if process.is_alive():
        with suppress(ProcessLookupError):  # it ended in this moment
            os.kill(process.pid, signal.SIGKILL)
    process.join()
    if process.exitcode != -signal.SIGKILL:
        return None
    died = max(died, last_step(pipe)) + during_save  # a step is reported after the save that follows it
    unreadable, unhashed, good = look(run.folder / "resume")
    return {
        "aimed": "while saving" if during_save else "at any moment",
        "resumed_from": begun,
        "died_after": died,
        "good_checkpoint": good,
        "unreadable": unreadable,
        "without_hash": unhashed,
        "lost": max(0, died - good),
    }


def main() -> None:
    """Kill, count, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--arm", default="stem-full")
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    catalog = load()
    scale, blocks = catalog.scale(options.scale), Path("data") / options.scale / "blocks"
    rng, rows, same = random.Random(0), [], []
    base = run_at(catalog, scale, options.arm, blocks, Path(tempfile.mkdtemp()) / "whole")
    finish(base)
    run = replace(base, folder=base.folder.parent / "killed")

    def compare() -> bool:
        names = sorted(path.name for path in base.folder.iterdir() if path.name != "provenance.json")
        return all((base.folder / name).read_bytes() == (run.folder / name).read_bytes() for name in names)

    for number in track(range(options.kills), "kills"):
        while (kill := kill_once(run, number % 2 == 1, rng)) is None:
            same.append(compare())
            shutil.rmtree(run.folder)
        rows.append(kill)
    finish(run)
    same.append(compare())
    table, about = pd.DataFrame(rows), provenance()
    print(table.groupby("aimed").agg({"lost": ["count", "max"], "unreadable": "sum", "without_hash": "sum"}))
    print(f"{sum(same)} of {len(same)} runs that came to their end have the bytes of one that nothing happened to; "
          f"saved every {scale.training.save_every} steps; {about['commit']}, {about['machine']}")  # fmt: skip


if __name__ == "__main__":
    main()
