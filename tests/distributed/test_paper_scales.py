"""The paper's scales, cut down, take their first steps on four processes: their files, plan, text and training."""

import json

import pytest
import yaml

from stemrepro.cli.making import data
from stemrepro.config.address import MAIN, Address
from stemrepro.pipeline import plan
from stemrepro.pipeline.planned import asked_runs, train_runs
from tests.conftest import copy_recipes

STEPS = 5
SIZES = {
    "paper-350m": {"vocab": 512, "width": 60, "ffn_width": 160, "layers": 4, "sequence": 64},
    "paper-1b": {"vocab": 512, "width": 128, "ffn_width": 512, "layers": 4, "sequence": 64},
}
"""Heads stay the scale's own."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.usefixtures("deadline")
def test_first_steps_on_four_processes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_recipes(tmp_path, name.replace("paper-", "pretraining_"))
    file = tmp_path / f"recipes/scales/{name}.yaml"
    scale = yaml.safe_load(file.read_text())
    scale["model"] |= SIZES[name]
    scale["training"] |= {
        "tokens": STEPS * 32 * 64, "batch": 32, "micro_batch": min(4, scale["training"]["micro_batch"]),
        "accelerator": "cpu", "threads": 1, "evals": 2, "eval_tokens": 256,
    }  # fmt: skip
    strategy = scale["parallel"]["strategy"]
    scale["parallel"]["devices"] = 4
    mid = {"mid": "mid-sample"} if "mid" in scale else {}
    file.write_text(yaml.safe_dump(scale | {"data": "sample"} | mid))
    _, params = plan.write(name)
    for step in ("fetch", "corpus"):
        data(step, mix="sample")
    for step in ("tokenizer", "blocks", *mid):
        data(step, scale=name)
    planned, settings = params.planned(name), params.scale[name]
    wanted = {address: planned[address] for address in [Address(MAIN, "stem-third")]}
    runs = asked_runs(name, "sample", planned, wanted, parallel=settings.parallel)
    train_runs(runs, workers=1, replace=False)
    (run,) = runs
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert len(losses) == STEPS
    assert all(5 < loss < 8 for loss in losses)  # ln 512 = 6.2
    parallel = json.loads((run.folder / "provenance.json").read_text())["parallel"]
    assert (parallel["strategy"], parallel["devices"]) == (strategy, 4)
