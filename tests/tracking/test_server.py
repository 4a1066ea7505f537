"""Where MLflow keeps runs and shows them."""

import json
from urllib.parse import parse_qs

from stemrepro.tracking.server import address, saved_view


def test_the_address_is_that_of_the_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    page = address("1", 5001)
    assert page.startswith("http://127.0.0.1:5001/#/experiments/1/runs?")
    query = parse_qs(page.partition("?")[2])
    tag, view = saved_view(0).popitem()
    assert [tag.rpartition(".")[2]] == query["viewStateShareKey"]
    state = json.loads(json.loads(view)["state"])
    assert state["searchFilter"] == "tags.kind = 'arm'"
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`final/prose_gap`", False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user@host/mlflow")
    assert address("1", 5001) == page
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert address("1", 5001) == page.replace("http://127.0.0.1:5001/", "https://mlflow.example.org/")
