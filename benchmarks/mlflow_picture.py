"""docs/mlflow.png: what `make ui` shows of the laptop's arms, from the committed scores.

    python -m benchmarks.mlflow_picture

Builds a database in a temporary folder, serves it, and photographs the page in Chromium. Nothing is trained and nothing
else is written.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from stemrepro.common.files import atomic_write
from stemrepro.measures.catalog import load
from stemrepro.report.browser import chromium
from stemrepro.tracking.sync import Tracker

SCALE, PICTURE = "laptop", Path("docs/mlflow.png")
SIZE = {"width": 1680, "height": 1270}
CLOSED = (
    "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false'); "
    "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
)
"""Closes the panel that MLflow opens next to the table at a first visit."""
WAIT_SECONDS = 60


@contextmanager
def served(database: str, folder: Path) -> Iterator[str]:
    """Give the address of an MLflow server over a database, as long as the block lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server, address = Path(sys.executable).parent / "mlflow", f"http://127.0.0.1:{port}"
    command = [str(server), "server", "--backend-store-uri", database, "--port", str(port), "--workers", "1"]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(folder / "server.log", "wb") as log:
        running = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(WAIT_SECONDS):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        yield address
    finally:
        os.killpg(running.pid, 9)
        running.wait()


def photograph(address: str, arms: list[str]) -> bytes:
    """Return the page as PNG, once its table shows the arms."""
    with chromium() as browser:
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.2)
        page.add_init_script(CLOSED)
        page.goto(address)
        for arm in arms:
            page.get_by_role("link", name=arm, exact=True).first.wait_for(timeout=1000 * WAIT_SECONDS)
        page.wait_for_timeout(1000)  # columns get their widths after their rows
        picture = page.screenshot()
    return picture


def main() -> None:
    """Write the picture."""
    catalog, home = load(), Path.cwd()
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):  # MLflow keeps artifacts where it runs
        folder = Path(temporary)
        os.environ["MLFLOW_TRACKING_URI"] = database = f"sqlite:///{folder}/mlflow.db"
        tracker = Tracker(SCALE, catalog, folder / "runs", home / "scores", home / "results")
        tracker.sync()
        with served(database, folder) as server:
            picture = photograph(f"{server}/{tracker.place}", ["dense", "stem-full", "stem-third"])
    atomic_write(PICTURE, picture)


if __name__ == "__main__":
    main()
