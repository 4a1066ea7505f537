"""The writer of golden_losses.json, after a deliberate change of what training computes, or for a new arm:

python -m pytest tests/training/write_golden.py

Each loss has a tolerance: FACTOR times the largest deviation, up to that step, of DRAWS runs whose initialisation was
moved by one unit in the last place, up or down at random; at least FACTOR units in the last place of the loss. Another
processor rounds every operation differently, not the initialisation alone, so it deviates by some times that.
"""

import json
from pathlib import Path

import numpy as np
import torch

from stemrepro.measures.catalog import load
from stemrepro.training import module
from stemrepro.training.folder import empty
from stemrepro.training.train import train
from tests.conftest import ROOT, quiet
from tests.training.test_train import rows

FILE = Path(__file__).with_name("golden_losses.json")
DRAWS, FACTOR = 4, 16


def nudged(build, draw):
    """`build`, with every weight moved by one unit in the last place."""

    def made(config, seed):
        model, generator = build(config, seed), torch.Generator().manual_seed(draw)
        with torch.no_grad():
            for weight in model.parameters():
                up = torch.rand(weight.shape, generator=generator) < 0.5
                weight.copy_(torch.nextafter(weight, torch.where(up, torch.inf, -torch.inf)))
        return model

    return made


def losses_of(run):
    train(run, quiet)
    losses = np.array([row["loss"] for row in rows(run)])
    empty(run.folder)
    return losses


def test_write(make_run, monkeypatch):
    """Named as a test so that pytest lends it the fixtures; pytest collects it only when its file is named."""
    build, golden = module.build, {}
    for arm in load(ROOT / "recipes").arms:
        plain, moved = losses_of(make_run(arm)), []
        for draw in range(DRAWS):
            monkeypatch.setattr(module, "build", nudged(build, draw))
            moved.append(np.abs(losses_of(make_run(arm)) - plain))
        monkeypatch.setattr(module, "build", build)
        largest = np.maximum.accumulate(np.max(moved, axis=0))
        least = np.spacing(plain.astype(np.float32))
        tolerance = [float(f"{FACTOR * value:.2g}") for value in np.maximum(largest, least)]
        golden[arm] = {"loss": [round(float(loss), 6) for loss in plain], "tolerance": tolerance}
    lines = (f"{json.dumps(arm)}: {json.dumps(values)}" for arm, values in sorted(golden.items()))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert json.loads(FILE.read_text()) == golden
