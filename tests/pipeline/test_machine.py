"""What a machine lacks: each check passes and fails."""

import socket
from collections import namedtuple

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from stemrepro.pipeline import machine, plan
from stemrepro.pipeline.price import Disk

Usage = namedtuple("Usage", "total used free")


def test_free_disk(tmp_path, monkeypatch):
    """Both folders lie on one disk, so their needs add up."""
    folders = tmp_path / "data", tmp_path / "runs" / "deep"
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: Usage(0, 0, 10**9))
    assert machine.free_disk(Disk(5 * 10**8, 3 * 10**8, 2 * 10**8), *folders) == ""
    assert "need 1 GB" in machine.free_disk(Disk(5 * 10**8, 3 * 10**8, 2 * 10**8 + 1), *folders)


def test_devices_and_their_memory():
    assert machine.enough_devices(2, 5e9, [8 * 10**9] * 2) == ""
    assert machine.enough_devices(4, 5e9, [8 * 10**9] * 2) == "the scale wants 4 GPUs, and torch sees 2"
    assert "9.0 GB before activations, and one here has 8.0 GB" in machine.enough_devices(2, 9e9, [10**10, 8 * 10**9])


def test_torch_is_built_for_gpus_where_they_are_wanted():
    assert machine.cuda_build("2.13", "13.0", True) == machine.cuda_build("2.13", None, False) == ""
    assert "without CUDA" in machine.cuda_build("2.13", None, True)


def test_the_compiler_is_asked_only_where_runs_are_compiled():
    assert machine.compiler(True, "cpu", lambda _: True) == machine.compiler(False, "cpu", lambda _: False) == ""
    assert "doesn't work for cpu" in machine.compiler(True, "cpu", lambda _: False)


def test_a_lock_holds_against_a_second_process(tmp_path):
    assert machine.locks(tmp_path) == ""
    assert "two processes can lock" in machine.locks(tmp_path, asks="")


def test_a_file_is_written_and_goes_away(tmp_path, monkeypatch):
    assert machine.writes(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine, "atomic_write", full)
    assert "No space left" in machine.writes(tmp_path)


def test_servers_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        uri = f"postgresql+psycopg2://u@127.0.0.1:{port}/optuna"
        assert machine.answers("OPTUNA_STORAGE", uri) == ""
    assert f"OPTUNA_STORAGE: nothing answers at 127.0.0.1:{port}" in machine.answers("OPTUNA_STORAGE", uri)
    assert machine.answers("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db") == machine.answers("OPTUNA_STORAGE", "") == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, ""),
        (GatedRepoError, "model 'a/b': the hub refuses it; agree to its terms there and set HF_TOKEN"),
        (RepositoryNotFoundError, "the hub has no such model, or hides it"),
        (HfHubHTTPError, "can't be reached (said)"),
        (RuntimeError, "can't be reached (said)"),
    ],
)
def test_the_hub_gives_a_repository(error, words):
    def check(name, repo_type):
        assert (name, repo_type) == ("a/b", "model")
        if error is not None:
            raise refusal(error)

    said = machine.hub_repository("model", "a/b", check)
    assert (said == "") == (words == "")
    assert words in said


def refusal(kind):
    """An error as huggingface_hub raises it."""
    if not issubclass(kind, HfHubHTTPError):
        return kind("said")
    error = kind.__new__(kind)
    error.args = ("said",)
    return error


def test_the_clock():
    assert machine.clock(machine.EARLIEST) == ""
    assert "2025-11-30" in machine.clock(machine.EARLIEST - 1)


def test_a_plan_names_its_repositories(catalog):
    named = {name: machine.hub_repositories(plan.make_params(catalog, name)) for name in ("paper-1b", "smoke")}
    assert named["smoke"] == []
    assert named["paper-1b"] == [
        ("dataset", "allenai/olmo-mix-1124"),
        ("dataset", "nvidia/Nemotron-CC-Math-v1"),
        ("dataset", "nvidia/Nemotron-Pretraining-Code-v1"),
    ]


def test_all_checks_of_a_large_scale_are_said_together(catalog, tmp_path, monkeypatch):
    """On a machine without GPUs, without room and without the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "gpu_memory", list)
    monkeypatch.setattr(HfApi, "auth_check", lambda *_, **about: (_ for _ in ()).throw(refusal(GatedRepoError)))
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: Usage(0, 0, 10**9))
    said = "\n".join(machine.faults(catalog, plan.make_params(catalog, "paper-1b")))
    for words in ("GB free", "wants 8 GPUs, and torch sees 0", "agree to its terms"):
        assert words in said
