"""The block `parallel` from a scale's file to ranks, through the commands."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from stemrepro.common.files import locked
from stemrepro.training.checkpoint import newest
from tests.conftest import ROOT, TINY

PARALLEL = {"strategy": "ddp", "devices": 2}


def stemrepro(folder, *arguments):
    """A command's exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "stemrepro.cli", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def write_scale(folder, training=None, **parallel):
    fields = TINY["training"] | {"micro_batch": 1} | (training or {})
    scale = TINY | {"parallel": PARALLEL | parallel, "training": fields}
    (folder / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(scale))


@pytest.mark.slow
def test_one_command_trains_on_several_devices_and_leaves_after_a_signal(sample, tmp_path):
    """`stemrepro train` starts the ranks, of which none outlives it; one device takes the run for ended."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    write_scale(tmp_path, devices=3)
    code, said = stemrepro(tmp_path, "plan", "--scale", "tiny", "--recipe", "rivals", "--quiet")
    assert code == 2
    assert "at scale 'tiny' can't be trained under parallel" in said
    assert "batch 4 is no multiple of micro_batch 1 x devices 3 = 3" in said
    write_scale(tmp_path, {"tokens": 32 * 4 * 300})
    code, said = stemrepro(tmp_path, "plan", "--scale", "tiny", "--recipe", "rivals", "--quiet")
    assert code == 0, said
    train, folder = ("train", "dense", "--scale", "tiny", "--untracked"), tmp_path / "runs/tiny/main/dense/seed0"
    line = [sys.executable, "-m", "stemrepro.cli", *train]
    command = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not newest(folder / "resume") and time.monotonic() < until:
        time.sleep(0.05)
    before = newest(folder / "resume")
    command.send_signal(signal.SIGTERM)
    said = command.communicate(timeout=60)[1]
    assert command.returncode == 75, said
    assert "the same command resumes" in said
    left = newest(folder / "resume")
    assert left > before
    with locked(folder, "a rank is still there"):
        pass
    code, said = stemrepro(tmp_path, *train)
    assert code == 0, said
    about = json.loads((folder / "provenance.json").read_text())
    assert about["resumed_from"] == left.name
    assert about["parallel"] == PARALLEL | {"table_ranks": None}
    assert "parallel" not in (folder / "config.yaml").read_text()
    params = tmp_path / "plan/params.yaml"
    values = yaml.safe_load(params.read_text())
    assert values["scale"]["tiny"].pop("parallel") == PARALLEL | {"table_ranks": None}
    params.write_text(yaml.safe_dump(values))
    written = (folder / "weights.safetensors").stat().st_mtime_ns
    code, said = stemrepro(tmp_path, *train)
    assert code == 0, said
    assert (folder / "weights.safetensors").stat().st_mtime_ns == written
