"""Rewrites golden_losses.json after a deliberate change of what training computes:

python -m pytest tests/training/write_golden.py
"""

import json

from stemrepro.files import write_json
from stemrepro.recipe import load
from stemrepro.training.train import train
from tests.conftest import ROOT, quiet
from tests.training.test_train import GOLDEN, rows


def test_write(make_run):
    """Named as a test so that pytest lends it the fixtures; pytest collects it only when its file is named."""
    losses = {}
    for arm in load(ROOT / "recipes").arms:
        run = make_run(arm)
        train(run, quiet)
        losses[arm] = [round(row["loss"], 6) for row in rows(run)]
    write_json(GOLDEN, losses)
    assert json.loads(GOLDEN.read_text()) == losses
