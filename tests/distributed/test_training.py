"""Runs on two devices, which torchrun or srun has started, against the same run on one."""

import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stemrepro.common.errors import UserError
from stemrepro.config.parallel import Parallel
from stemrepro.pipeline.runs import init_from
from stemrepro.training.checkpoint import AtomicCheckpointIO, newest
from stemrepro.training.train import train
from tests.conftest import ROOT, quiet, retrained, written
from tests.distributed.what_processes_do import act
from tests.training.test_train import rows

pytestmark = pytest.mark.slow
DDP, FSDP = (Parallel(strategy=name, devices=2) for name in ("ddp", "fsdp"))
BOTH = pytest.mark.parametrize("name", ["ddp", "fsdp"])
FILE = str(ROOT / "tests/distributed/what_processes_do.py")
AROUND = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def torchrun(*command):
    """Run a Python command in two processes; return what the launcher is."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run([*start, *command], env=AROUND, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("parallel")


@pytest.fixture(scope="module")
def make(runs_in, tiny, folders):
    """make("fsdp", parallel) -> a run of 9 steps in a folder of that name, with 4 micro-batches a step."""
    training = tiny.training.model_copy(update={"micro_batch": 1, "tokens": 32 * 4 * 9})
    scale = tiny.model_copy(update={"training": training})

    def made(name, parallel=None, arm="stem-half"):
        return replace(runs_in(folders / name)(arm, scale=scale), parallel=parallel)

    return made


def together(folders, *runs, kills=0):
    """Train runs in two processes, one after another; each is a pair with what happens to it."""
    asked = folders / "asked"
    asked.write_bytes(pickle.dumps(runs))
    for left in range(kills, -1, -1):
        done = torchrun(FILE, str(asked))
        assert bool(done.returncode) == bool(left), done.stderr


@pytest.fixture(scope="module")
def trained(make, folders):
    """Every run that nothing kills, by name: those on one device, then in one start those on two."""
    runs = {"one": make("one"), "begun": make("begun"), "unread-one": make("unread-one", arm="token-only")}
    for name, run in runs.items():
        act(run, "interrupted" if name == "begun" else "")
    for name, parallel in (("ddp", DDP), ("fsdp", FSDP)):
        runs |= {name: make(name, parallel), f"left-{name}": make(f"left-{name}", parallel)}
        runs[f"opened-{name}"] = make(f"opened-{name}", parallel)
        shutil.copytree(runs["begun"].folder, runs[f"opened-{name}"].folder)
    runs |= {"unread": make("unread", DDP, arm="token-only"), "compiled": make("compiled", FSDP)}
    runs["compiled"] = retrained(runs["compiled"], compile=True)
    for name, parallel in (("stage-one", None), ("stage", FSDP)):
        first = replace(make(name, parallel), keep_final_checkpoint=True)
        later = replace(first, folder=first.folder.with_name("later"), keep_final_checkpoint=False)
        runs |= {name: first, f"{name}-later": replace(later, init_from=init_from(later, [first], "kept"))}
    act(runs["stage-one"], "")
    act(runs["stage-one-later"], "")
    what = {"left-ddp": "interrupted", "left-fsdp": "interrupted", "compiled": "compiled"}
    together(folders, *[(run, what.get(name, "")) for name, run in runs.items() if run.parallel])
    return runs


def about(run):
    return json.loads((run.folder / "provenance.json").read_text())


def same(run, other):
    """Both runs learnt the same, to rounding; Adam blows it up where a gradient is nearly zero."""
    for row, expected in zip(rows(run), rows(other), strict=True):
        validation, others = row.pop("validation", {}), expected.pop("validation", {})
        assert row == pytest.approx(expected, rel=1e-5, abs=5e-6)
        assert validation == pytest.approx(others, rel=1e-5, abs=5e-6)
    weights, expected = load_file(run.weights), load_file(other.weights)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], atol=2e-4, rtol=0)


@BOTH
def test_a_run_on_two_devices_is_that_on_one(trained, name):
    run, one = trained[name], trained["one"]
    same(run, one)
    assert run.ended
    assert run.config == one.config
    assert {path.name for path in run.folder.iterdir()} == {path.name for path in one.folder.iterdir()}
    assert about(run)["parallel"] == run.parallel.model_dump(mode="json")
    assert "parallel" not in about(one)


@BOTH
def test_a_checkpoint_of_one_process_opens_in_two(trained, name):
    run = trained[f"opened-{name}"]
    assert about(run)["resumed_from"] == "step000000005.ckpt"
    same(run, trained["one"])


@BOTH
def test_a_checkpoint_of_two_processes_opens_in_one(trained, folders, name):
    left = trained[f"left-{name}"]
    run = replace(left, folder=folders / f"back-{name}" / "seed0", parallel=None)
    shutil.copytree(left.folder, run.folder)
    assert newest(run.folder / "resume").is_dir() == (name == "fsdp")
    train(run, quiet)
    assert about(run)["resumed_from"] == "step000000005.ckpt"
    same(run, trained["one"])


def test_a_killed_run_resumes_to_the_bit(trained, make, folders):
    """One is killed as the checkpoint of step 5 is written, but not yet there."""
    killed, writing = make("killed-fsdp", FSDP), make("writing", FSDP)
    together(folders, (killed, "killed"), (writing, "killed while writing"), kills=2)
    for run, start in ((killed, "step000000005.ckpt"), (writing, None)):
        assert run.folder.with_name("killed").exists()
        assert about(run)["resumed_from"] == start
        assert written(run) == written(trained["fsdp"])


def test_parameters_that_no_pass_reads_stay(trained):
    """The norms before tables without a gate, as they were drawn."""
    same(trained["unread"], trained["unread-one"])


def test_blocks_are_compiled_one_by_one(trained):
    assert about(trained["compiled"])["compiled"]
    same(trained["compiled"], trained["one"])


def test_a_later_stage_resumes_from_a_sharded_run(trained):
    """Its steps are those of a stage that resumes from the same run on one device."""
    same(trained["stage-later"], trained["stage-one-later"])


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_reading_a_folder_executes_no_code(trained, tmp_path):
    path = tmp_path / "step000000005.ckpt"
    shutil.copytree(newest(trained["left-fsdp"].folder / "resume"), path)
    assert AtomicCheckpointIO().load_checkpoint(path)["global_step"] == 5
    for file in path.iterdir():
        if file.suffix != ".safetensors":
            file.write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    with pytest.raises(UserError, match="is no checkpoint of tensors and plain values"):
        AtomicCheckpointIO().load_checkpoint(path)
    assert not (tmp_path / "executed").exists()


def test_a_run_that_asks_for_devices_says_how_to_start_it(make):
    with pytest.raises(UserError, match="here are 1 processes; start it with 'torchrun --nnodes=1 --nproc-per-node=2"):
        train(make("alone", DDP), quiet)


def test_slurm_starts_a_run_too(trained, make, folders):
    """Two processes with what srun would tell them."""
    run, asked = make("slurm", FSDP), folders / "asked"
    asked.write_bytes(pickle.dumps([(run, "")]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = "NTASKS=2 NTASKS_PER_NODE=2 NNODES=1 NODEID=0 NODELIST=127.0.0.1 JOB_ID=7 JOB_NAME=tiny"
    told = AROUND | {"MASTER_PORT": str(port)} | dict(f"SLURM_{field}".split("=") for field in job.split())
    command = [sys.executable, FILE, str(asked)]
    places = [{"SLURM_PROCID": number, "SLURM_LOCALID": number} for number in "01"]
    processes = [subprocess.Popen(command, env=told | place) for place in places]
    assert [process.wait(300) for process in processes] == [0, 0]
    assert written(run) == written(trained["fsdp"])
