"""The block `parallel` from a scale's file to ranks, through the commands."""

import json
import signal
import subprocess
import sys
import time

import pytest
import yaml
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.common.files import locked
from stemrepro.config.parallel import Parallel
from stemrepro.training.checkpoint import newest
from tests.conftest import TINY, copy_recipes

PARALLEL = Parallel(strategy="ddp", devices=2).model_dump()


@pytest.fixture
def project(sample, tmp_path, monkeypatch):
    """recipes/ and the text of a scale `tiny`; the working directory."""
    monkeypatch.chdir(tmp_path)
    copy_recipes(tmp_path, "rivals")
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    return tmp_path


def stemrepro(*arguments):
    """A command's exit code and what it said."""
    done = CliRunner().invoke(app, [*arguments, "--scale", "tiny"])
    return done.exit_code, done.output


PLAN, TRAIN = ("plan", "--recipe", "rivals", "--quiet"), ("train", "dense", "--untracked")


def write_scale(folder, training=None, **parallel):
    fields = TINY["training"] | {"micro_batch": 1} | (training or {})
    scale = TINY | {"parallel": PARALLEL | parallel, "training": fields}
    (folder / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(scale))


@pytest.mark.slow
def test_one_command_trains_on_several_devices(project):
    """`stemrepro train` starts the ranks; the run is the one that a single device has begun or ended."""
    write_scale(project, devices=3)
    code, said = stemrepro(*PLAN)
    assert code == 2
    assert "at scale 'tiny' can't be trained under parallel" in said
    assert "batch 4 is no multiple of micro_batch 1 x devices 3 = 3" in said
    write_scale(project)
    assert stemrepro(*PLAN)[0] == 0
    code, said = stemrepro(*TRAIN)
    assert code == 0, said
    folder = project / "runs/tiny/main/dense/seed0"
    assert json.loads((folder / "provenance.json").read_text())["parallel"] == PARALLEL
    assert "parallel" not in (folder / "config.yaml").read_text()
    params = project / "plan/params.yaml"
    values = yaml.safe_load(params.read_text())
    assert values["scale"]["tiny"].pop("parallel") == PARALLEL
    params.write_text(yaml.safe_dump(values))
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    code, said = stemrepro(*TRAIN)
    assert code == 0, said
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_signal_to_the_command_leaves_with_a_checkpoint_and_75(project):
    """And no rank outlives it."""
    write_scale(project, {"tokens": 32 * 4 * 2000, "save_every": 20})
    assert stemrepro(*PLAN)[0] == 0
    line = [sys.executable, "-m", "stemrepro.cli", *TRAIN, "--scale", "tiny"]
    command = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    resume = project / "runs/tiny/main/dense/seed0/resume"
    until = time.monotonic() + 60
    while not newest(resume) and time.monotonic() < until:
        time.sleep(0.1)
    before = newest(resume)
    command.send_signal(signal.SIGTERM)
    said = command.communicate(timeout=60)[1]
    assert command.returncode == 75, said
    assert "the same command resumes" in said
    assert newest(resume) > before
    with locked(resume.parent, "a rank is still there"):
        pass
