"""Where MLflow keeps runs, and the address that compares arms; nothing here imports MLflow, which takes seconds."""

import os
import socket
from urllib.parse import urlencode

from stemrepro.common.errors import UserError


def tracking_uri() -> str:
    """Return where MLflow keeps its runs."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def check_free(port: int) -> None:
    """Raise UserError where `make ui` can't start a server at a port; that of MLFLOW_TRACKING_URI runs already."""
    if tracking_uri().startswith("http"):
        return
    with socket.socket() as tried:
        # As servers do: a server that has just ended doesn't block the port.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"nothing can be served at port {port} ({error.strerror}); choose another: make ui PORT={port + 1}"
            ) from error


def address(experiment: str, port: int) -> str:
    """Return where the arms of an experiment are compared, the widest gap to dense first."""
    server = uri if (uri := tracking_uri()).startswith("http") else f"http://127.0.0.1:{port}"
    query = {
        "workflowType": "machine_learning", "compareRunsMode": "CHART",
        "searchFilter": "tags.kind = 'arm' and tags.variant = 'main'",
        "orderByKey": "metrics.`final/prose_gap`", "orderByAsc": "false",
    }  # fmt: skip
    return f"{server.rstrip('/')}/#/experiments/{experiment}/runs?{urlencode(query)}"
