"""The block `parallel` from a scale's file to devices, through the commands."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from stemrepro.cli import app
from stemrepro.config.parallel import Parallel
from tests.conftest import TINY, copy_recipes
from tests.distributed.test_training import torchrun

PARALLEL = Parallel(strategy="ddp", devices=2).model_dump()
PLAN, TRAIN = ("plan", "--recipe", "rivals"), ("train", "dense", "--untracked", "--scale", "tiny")


def write_scale(folder, **parallel):
    scale = TINY | {"parallel": PARALLEL | parallel, "training": TINY["training"] | {"micro_batch": 1}}
    (folder / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(scale))


def planned():
    """The exit code of `stemrepro plan` and what it said."""
    done = CliRunner().invoke(app, [*PLAN, "--scale", "tiny"])
    return done.exit_code, done.output


@pytest.mark.slow
def test_the_command_trains_on_two_devices(sample, tmp_path, monkeypatch):
    """torchrun starts it; the run is the one that a single device has begun or ended."""
    monkeypatch.chdir(tmp_path)
    copy_recipes(tmp_path, "rivals")
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    write_scale(tmp_path, devices=3)
    code, said = planned()
    assert code == 2
    assert "at scale 'tiny' can't be trained under parallel" in said
    assert "batch 4 is no multiple of micro_batch 1 x devices 3 = 3" in said
    write_scale(tmp_path)
    assert planned()[0] == 0
    done = torchrun("-m", "stemrepro.cli", *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("dense") == 1  # the first process alone speaks
    folder = tmp_path / "runs/tiny/main/dense/seed0"
    assert json.loads((folder / "provenance.json").read_text())["parallel"] == PARALLEL
    assert "parallel" not in (folder / "config.yaml").read_text()
    scale = tmp_path / "recipes/scales/tiny.yaml"
    values = yaml.safe_load(scale.read_text())
    assert values.pop("parallel")["devices"] == 2
    scale.write_text(yaml.safe_dump(values))
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    done = CliRunner().invoke(app, TRAIN)
    assert done.exit_code == 0, done.output
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before
