"""Synchronisation of MLflow while runs train, in a thread of the command that waits for them."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stemrepro.common.paths import RUNS, SCORES

SECONDS = 30.0
"""Time between two syncs."""


@contextmanager
def followed(scale: str, names: list[str]) -> Iterator[None]:
    """Sync addresses, by their names, as long as the body lasts, and once after it.

    An error of MLflow is a line on stderr and doesn't reach the body.
    """
    ended = threading.Event()

    def sync() -> None:
        try:
            from stemrepro.measures.catalog import load
            from stemrepro.tracking.sync import Tracker  # imports MLflow: the body begins meanwhile

            tracker, last, message = Tracker(scale, load(), RUNS, SCORES), False, ""
        except Exception as error:
            print(f"stemrepro: MLflow shows nothing of this training: {error}", file=sys.stderr)
            return
        while not last:
            last = ended.wait(SECONDS)
            try:
                tracker.sync(*names)
            except Exception as error:  # it may be over at the next sync
                if str(error) != message:
                    message = str(error)
                    print(f"stemrepro: MLflow is not up to date: {message}", file=sys.stderr)

    thread = threading.Thread(target=sync, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
