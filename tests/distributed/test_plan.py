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
from stemrepro.config.parallel import Parallel
from stemrepro.training.checkpoint import newest
from tests.conftest import ROOT, TINY

PARALLEL = Parallel(strategy="ddp", devices=2).model_dump()


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
def test_one_command_trains_on_several_devices(sample, tmp_path):
    """`stemrepro train` starts the ranks; the run is the one that a single device has begun or ended."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    write_scale(tmp_path, devices=3)
    code, said = stemrepro(tmp_path, "plan", "--scale", "tiny", "--recipe", "rivals", "--quiet")
    assert code == 2
    assert "at scale 'tiny' can't be trained under parallel" in said
    assert "batch 4 is no multiple of micro_batch 1 x devices 3 = 3" in said
    write_scale(tmp_path)
    code, said = stemrepro(tmp_path, "plan", "--scale", "tiny", "--recipe", "rivals", "--quiet")
    assert code == 0, said
    code, said = stemrepro(tmp_path, "train", "dense", "--scale", "tiny", "--untracked")
    assert code == 0, said
    folder = tmp_path / "runs/tiny/main/dense/seed0"
    assert json.loads((folder / "provenance.json").read_text())["parallel"] == PARALLEL
    assert "parallel" not in (folder / "config.yaml").read_text()
    params = tmp_path / "plan/params.yaml"
    values = yaml.safe_load(params.read_text())
    assert values["scale"]["tiny"].pop("parallel") == PARALLEL
    params.write_text(yaml.safe_dump(values))
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    code, said = stemrepro(tmp_path, "train", "dense", "--scale", "tiny", "--untracked")
    assert code == 0, said
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_to_the_command_leaves_with_a_checkpoint_and_75(sample, tmp_path, number):
    """And no rank outlives it."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    write_scale(tmp_path, {"tokens": 32 * 4 * 2000, "save_every": 50})
    code, said = stemrepro(tmp_path, "plan", "--scale", "tiny", "--recipe", "rivals", "--quiet")
    assert code == 0, said
    line = [sys.executable, "-m", "stemrepro.cli", "train", "dense", "--scale", "tiny", "--untracked"]
    command = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    resume = tmp_path / "runs/tiny/main/dense/seed0/resume"
    until = time.monotonic() + 60
    while not newest(resume) and time.monotonic() < until:
        time.sleep(0.1)
    before = newest(resume)
    command.send_signal(number)
    said = command.communicate(timeout=60)[1]
    assert command.returncode == 75, said
    assert "the same command resumes" in said
    assert newest(resume) > before
    with locked(resume.parent, "a rank is still there"):
        pass
