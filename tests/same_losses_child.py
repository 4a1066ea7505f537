
"""Trains every arm of this tree and writes what came out; the fixtures are the tree's own."""
import hashlib
import json
import os

import yaml
from safetensors.torch import load_file

from stemrepro.training.train import train
from tests.conftest import ROOT, quiet

STEPS = int(os.environ["SAME_LOSSES_STEPS"])


def test_write(make_run, tiny):
    shape = tiny.model.model_copy(update={"width": 64, "layers": 6, "ffn_width": 176})
    tokens = STEPS * tiny.training.batch * shape.sequence
    budget = tiny.training.model_copy(update={"tokens": tokens, "save_every": STEPS + 1})
    scale, results = tiny.model_copy(update={"model": shape, "training": budget}), {}
    for arm in yaml.safe_load((ROOT / "recipes/arms.yaml").read_text(encoding="utf-8")):
        run = make_run(arm, scale=scale)
        train(run, quiet)
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        hashed = hashlib.sha256()
        for name, value in sorted(load_file(run.weights).items()):
            hashed.update(name.encode() + value.numpy().tobytes())
        results[arm] = {
            "loss": [row["loss"] for row in rows], "norm": [row["norm"] for row in rows], "weights": hashed.hexdigest(),
            "code": run.config["code"],
        }
        print(f"TRAINED {arm}", flush=True)
    with open(os.environ["SAME_LOSSES_OUT"], "w") as file:
        json.dump(results, file)
