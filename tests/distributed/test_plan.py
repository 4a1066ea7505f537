"""The block `parallel` from a scale's file to ranks, through the commands."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.conftest import ROOT, TINY

PARALLEL = {"strategy": "ddp", "devices": 2}


def stemrepro(folder, *arguments):
    """A command's exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "stemrepro.cli", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def write_scale(folder, **parallel):
    scale = TINY | {"parallel": PARALLEL | parallel, "training": TINY["training"] | {"micro_batch": 1}}
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
    assert json.loads((folder / "provenance.json").read_text())["parallel"] == PARALLEL | {"table_ranks": None}
    assert "parallel" not in (folder / "config.yaml").read_text()
    params = tmp_path / "plan/params.yaml"
    values = yaml.safe_load(params.read_text())
    assert values["scale"]["tiny"].pop("parallel") == PARALLEL | {"table_ranks": None}
    params.write_text(yaml.safe_dump(values))
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    code, said = stemrepro(tmp_path, "train", "dense", "--scale", "tiny", "--untracked")
    assert code == 0, said
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before
