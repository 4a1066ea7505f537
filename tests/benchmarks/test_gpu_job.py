"""The job for one GPU, on the processor: what its lines say, and what it leaves."""

import json
import shutil
import tarfile
from dataclasses import replace

import pandas as pd
import pytest
import yaml

from benchmarks import device_paths, gpu_job
from benchmarks.gpu_job import Section
from stemrepro.pipeline import plan
from tests.conftest import ROOT, TINY, copy_recipes


@pytest.mark.slow
def test_sections_end_are_killed_skipped_or_left_out_and_all_is_said(sample, empty_database, tmp_path, monkeypatch):
    """Training and scoring are the real commands; their runs are in the archive."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    copy_recipes(tmp_path, "angular_spread")
    shutil.copy(empty_database, "mlflow.db")
    (tmp_path / "recipes/scales/tiny.yaml").write_text(yaml.safe_dump(TINY))
    plan.write("tiny", ("angular_spread",))
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    every = gpu_job.sections(tmp_path, "cpu", "tiny", 1e12)
    real = {section.name: replace(section, seconds=600) for section in every}  # of a busy machine
    assert list(real) == ["versions", "paths", "speeds", "pilot", "rate", "training", "scores"]
    scale = tmp_path / "recipes/scales/tiny.yaml"
    scale.write_text(scale.read_text() + "# stays\n")
    asked = [
        real["versions"], Section("endless", ("-c", "import time; time.sleep(60)"), 1), real["speeds"],
        Section("failing", ("-c", "raise SystemExit(3)"), 30), real["pilot"], real["rate"], real["training"],
        Section("too long", ("-c", "pass"), 10_000),
    ]  # fmt: skip
    monkeypatch.setattr(gpu_job, "sections", lambda *_: asked)
    gpu_job.work(tmp_path / "out", "cpu", "tiny", 20, 1e12)
    lines = [json.loads(line) for line in (tmp_path / "out/sections.jsonl").read_text().splitlines()]
    ends = {line["section"]: line["end"] for line in lines}
    assert ends["versions"] == ends["pilot"] == ends["rate"] == ends["training"] == "exit code 0", lines
    assert ends["endless"] == "killed after 1 s"
    assert ends["speeds"] == "skipped: no GPU"
    assert ends["failing"] == "exit code 3"
    assert ends["too long"].startswith("left out: 10000 s, and ")
    assert "no GPU" in lines[0]["said"]
    assert all(line["commit"] and line["date"] for line in lines)
    with tarfile.open(tmp_path / "out/runs.tar") as archive:
        names = archive.getnames()
    for arm in ("dense", "stem-third", "stem-full", "token-only"):
        assert f"runs/tiny/main/{arm}/seed0/weights.safetensors" in names
    tried = pd.read_csv(tmp_path / "out/pilot_rate/data.csv")
    best = float(tried.set_index("learning_rate")["prose"].idxmin())
    assert sorted(tried["learning_rate"]) == [0.001, 0.002, 0.004, 0.008]
    assert set(tried["seed"]) == {100}
    assert best != TINY["learning_rate"]
    text = (tmp_path / "out/tiny.yaml").read_text()
    assert text.endswith("# stays\n")
    assert yaml.safe_load(text) == yaml.safe_load(yaml.safe_dump(TINY | {"learning_rate": best}))
    for arm in ("dense", "stem-full"):
        run = yaml.safe_load((tmp_path / f"runs/tiny/main/{arm}/seed0/config.yaml").read_text())
        assert run["training"]["learning_rate"] == best


@pytest.mark.slow
def test_paths_of_a_device_are_compared(monkeypatch):
    """A resumed run has the bits of a whole one; one at another rate lies further apart than it may."""
    some = [pair for pair in device_paths.pairs("cpu") if pair.name == "whole and resumed"]
    other = device_paths.Pair("other", "dense", {}, {"learning_rate": 0.1}, device_paths.ROUNDING)
    monkeypatch.setattr(device_paths, "pairs", lambda device: (*some, other))
    resumed, apart = device_paths.compared("cpu", 8)
    assert (resumed["same_bits"], resumed["apart"], resumed["holds"]) == (True, 0.0, True)
    assert not apart["holds"]
    assert not apart["same_bits"]
