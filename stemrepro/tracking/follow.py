"""MLflow kept up to date while runs train, in a thread of the command that waits for them."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 30.0


@contextmanager
def followed(scale: str, names: list[str]) -> Iterator[None]:
    """Track addresses, by their names, every half minute and after the body; an error then is a line on stderr."""
    over = threading.Event()

    def follow() -> None:
        last = False
        while not last:
            last = over.wait(SECONDS)
            try:
                from stemrepro.measures.catalog import load
                from stemrepro.tracking.mlflow_runs import track  # imports MLflow, which short runs don't wait for

                track(scale, load(), names)
            except Exception as error:
                if last:  # else it may be gone the next time
                    print(f"stemrepro: MLflow is not up to date: {error}", file=sys.stderr)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
