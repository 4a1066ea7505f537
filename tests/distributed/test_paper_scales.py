"""The paper's scales, cut down, take their first steps on two processes: their files, plan, text and training."""

import json
from pathlib import Path

import pytest
import yaml

from stemrepro.cli.making import data
from stemrepro.common.files import digest, read_json
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.data.archives import SAMPLE
from stemrepro.pipeline.plan import make_plan
from stemrepro.pipeline.runs import asked_runs
from tests.conftest import copy_recipes
from tests.distributed.test_training import torchrun

STEPS = {MAIN: 20, "mid": 5, "longer-8": 5}
SIZES = {
    "paper-350m": {"vocab": 512, "width": 60, "ffn_width": 160, "layers": 4, "sequence": 64},
    "paper-1b": {"vocab": 512, "width": 128, "ffn_width": 512, "layers": 4, "sequence": 64},
}
"""Heads stay the scale's own."""


def shards_of(name):
    """Write lines of the sample into three files; return a mix of them, in place of one of the hub."""
    rows = map(json.loads, SAMPLE.with_name(f"{name}.jsonl").read_text().splitlines())
    lines = [json.dumps({"text": line}) for row in rows for line in "\n".join(row["passages"]).split("\n")]
    folder = Path("text", name)
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jsonl").write_text("\n".join(lines[number::3]))
    return {"kind": "hub", "dataset": str(folder), "megabytes": 1, "sample": 60, "licence": "", "attribution": ""}


def cut_down(name):
    """Write recipes/ with a small scale of that name, whose mixes read the sample."""
    copy_recipes(Path(), name.replace("paper", "pretraining").replace("-", "_"))
    file, mixes, variants = (
        Path(f"recipes/scales/{name}.yaml"),
        Path("recipes/mixes.yaml"),
        Path("recipes/variants.yaml"),
    )
    scale, texts, stages = (yaml.safe_load(path.read_text()) for path in (file, mixes, variants))
    scale["model"] |= SIZES[name]
    scale["training"] |= {
        "tokens": STEPS[MAIN] * 32 * 64, "batch": 32, "micro_batch": min(4, scale["training"]["micro_batch"]),
        "accelerator": "cpu", "threads": 1, "evals": 2, "eval_tokens": 256,
    }  # fmt: skip
    scale["parallel"]["devices"] = 2
    texts[scale["data"]] = shards_of("documents")
    if "mid" in scale:
        for part, about in texts[scale["mid"]]["parts"].items():
            about["mix"] = shards_of(part)
    for stage in ("mid", "longer-8"):
        stages[stage]["tokens"] = STEPS[stage] / STEPS[MAIN]
    for path, values in ((file, scale), (mixes, texts), (variants, stages)):
        path.write_text(yaml.safe_dump(values))


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_first_steps_on_two_processes(name, tmp_path, monkeypatch):
    """Of the pretraining; at 1B also of the mid-training after it, and of the extension after that."""
    monkeypatch.chdir(tmp_path)
    cut_down(name)
    made = make_plan(name)
    settings = made.scale
    for step in (None, "check"):
        data(step, scale=name)
    stages = [MAIN, "mid", "longer-8"] if settings.mid else [MAIN]
    wanted = [Address(stage, "stem-third") for stage in stages]
    runs = asked_runs(made, wanted)
    done = torchrun("-m", "stemrepro.cli", "train", *map(str, wanted), "--scale", name, "--untracked")
    assert done.returncode == 0, done.stderr
    blocks = {"own": f"data/{name}/blocks", "mid": f"data/{name}/mid/blocks"}
    texts = {text: read_json(Path(folder) / "index.json")["splits"]["train"] for text, folder in blocks.items()
             if settings.mid or text == "own"}  # fmt: skip
    before, by_stage = None, {run.address.variant: run for run in runs}
    for stage in stages:
        run = by_stage[stage]
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        losses = [row["loss"] for row in rows if "loss" in row]
        assert len(losses) == STEPS[stage]
        assert all(3 < loss < 8 for loss in losses)  # ln 512 = 6.2
        config = read_yaml(run.folder / "config.yaml")
        assert config["data"]["train_sha256"] == texts["mid" if stage == "mid" else "own"]["sha256"]
        assert config.get("init_from") == (before and {"parent": digest(before), "tables": "kept"})
        parallel = json.loads((run.folder / "provenance.json").read_text())["parallel"]
        assert (parallel["strategy"], parallel["devices"]) == (settings.parallel.strategy, 2)
        before = config
    if settings.mid:
        assert (run.training.sequence, run.training.batch, run.model.document_mask) == (8 * 64, 4, True)
        assert {shard["name"].split("-")[0] for shard in texts["mid"]["shards"]} == {"own", "mathematics", "code"}
        assert texts["mid"]["tokens"] == STEPS["mid"] * 32 * 64
