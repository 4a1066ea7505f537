"""Where MLflow keeps runs, and the address that shows them; nothing here imports MLflow, which takes seconds."""

import json
import os
import socket
import uuid
from pathlib import Path
from urllib.parse import urlencode

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest
from stemrepro.tracking.arm import GAP

CLONE = Path("mlflow.db.clone")
VIEW = "arms"
COLUMNS = {
    f"metrics.`{GAP}`": 120, "metrics.`final/prose_loss`": 130, "metrics.`cost/flops_per_token`": 150,
    "metrics.`cost/parameters`": 130, "metrics.`cost/tables_parameters`": 150,
    "tags.`seeds`": 70, "tags.`variant`": 130,
}  # fmt: skip
"""What the list of arms shows, with each column's width in pixels."""


def tracking_uri() -> str:
    """Return where MLflow keeps its runs."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def clone() -> str:
    """Return a short name of this folder where other folders may track to the same place; "" with its local database.

    The name is random. A moved folder keeps it, a copied one gets another.
    """
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        return ""
    if not CLONE.exists():
        atomic_write(CLONE, f"{uuid.uuid4().hex}\n")
    return digest([CLONE.read_text(encoding="utf-8"), CLONE.stat().st_ino])[:6]  # a copied file has another number


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


def page(experiment: str) -> str:
    """Return where the arms of an experiment are, the widest gap first, below the server's address."""
    query = {"workflowType": "machine_learning", "viewStateShareKey": VIEW, "compareRunsMode": "TABLE"}
    return f"#/experiments/{experiment}/runs?{urlencode(query)}"


def saved_view(made: int) -> dict[str, str]:
    """Return the tag of an experiment that holds the list of arms, as MLflow's menu "Views" writes it.

    An address can't name columns; a saved view can.

    Args:
        made: when the experiment was made (ms).
    """
    state = {
        "searchFilter": "tags.kind = 'arm'", "orderByKey": f"metrics.`{GAP}`", "orderByAsc": False,
        "selectedColumns": list(COLUMNS), "columnOrder": list(COLUMNS), "columnWidths": COLUMNS,
    }  # fmt: skip
    view = {"name": "Arms, the widest gap to dense first", "createdAt": made, "updatedAt": made}
    return {f"mlflow.sharedViewState.{VIEW}": json.dumps(view | {"state": json.dumps(state)})}


def address(experiment: str, port: int) -> str:
    """Return the whole address of that page, of the server that MLFLOW_TRACKING_URI names or of `make ui`."""
    server = uri if (uri := tracking_uri()).startswith("http") else f"http://127.0.0.1:{port}"
    return f"{server.rstrip('/')}/{page(experiment)}"
