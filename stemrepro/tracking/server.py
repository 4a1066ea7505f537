"""Where MLflow keeps runs, and the address that compares arms; nothing here imports MLflow, which takes seconds."""

import os
import re
from urllib.parse import urlencode

URI = "MLFLOW_TRACKING_URI"


def tracking_uri() -> str:
    """Return where MLflow keeps its runs."""
    return os.environ.get(URI) or "sqlite:///mlflow.db"


def public(text: str) -> str:
    """Return a text whose addresses name no user and no password."""
    return re.sub("://[^/@]*@", "://", text)


def address(experiment: str, port: int) -> str:
    """Return where the arms of an experiment are compared, the widest gap to dense first."""
    server = uri if (uri := public(tracking_uri())).startswith("http") else f"http://127.0.0.1:{port}"
    query = {
        "workflowType": "machine_learning",
        "compareRunsMode": "CHART",
        "searchFilter": "tags.kind = 'arm' and tags.variant = 'main'",
        "orderByKey": "metrics.`final/prose_gap`",
        "orderByAsc": "false",
    }
    return f"{server.rstrip('/')}/#/experiments/{experiment}/runs?{urlencode(query)}"
