"""Verdicts, scores and runs from Python."""

import math
from pathlib import Path

import pytest
import torch

from stemrepro.api import load, verdicts
from stemrepro.common.errors import UserError
from stemrepro.report.pages import every_row
from stemrepro.training.train import train
from tests.conftest import ROOT, quiet

TEXT = "The people of the United States"


@pytest.fixture(scope="module")
def home(runs_in, sample, tmp_path_factory):
    """A folder with three finished runs, their tokenizer, and the committed recipes, results and scores of losses."""
    home = tmp_path_factory.mktemp("home")
    for arm in ("dense", "dense-equal-flops", "stem-full"):
        train(runs_in(home / "runs/laptop")(arm), quiet)
    (home / "data").mkdir()
    (home / "data/laptop").symlink_to(sample)
    for name in ("recipes", "results", "scores"):
        (home / name).symlink_to(ROOT / name)
    return home


@pytest.fixture
def place(home, monkeypatch):
    monkeypatch.chdir(home)


def test_losses_are_what_the_logits_say(place):
    """By a plain loop over softmaxes."""
    run = load("runs/laptop/main/stem-full/seed0")
    logits, losses = run.logits(TEXT), run.losses(TEXT)
    ids = run.tokenizer.encode(TEXT).ids
    assert logits.shape == (len(ids) + 1, 300)
    assert len(losses) == len(ids)
    for k, token in enumerate(ids):
        odds = [math.exp(value) for value in logits[k].tolist()]
        assert losses.nats[k] == pytest.approx(-math.log(odds[token] / sum(odds)), abs=1e-5)
        assert losses["rank"][k] == sum(value > odds[token] for value in odds)
    assert "".join(losses.token).strip() == TEXT


def test_a_run_is_its_folder(place):
    run = load(Path("runs/laptop/main/dense/seed0"))
    assert (run.config["arm"], run.config["seed"], run.context) == ("dense", 0, 32)
    assert torch.equal(run.tokens("a")[0, :1], torch.tensor([0]))
    with pytest.raises(UserError, match=r"config\.yaml is missing or damaged"):
        load("runs/laptop/main/dense/seed9")


def test_every_claim_is_a_row(place):
    table = verdicts("laptop")
    assert len(table) == len(every_row("laptop", Path("results")))
    row = table.query("recipe == 'rivals' and claim == 'equal-flops'").iloc[0]
    assert row.ours == pytest.approx(sum(row.differences) / len(row.differences), abs=1e-6)
    assert row.verdict == "supported"
    with pytest.raises(UserError, match="scale 'lapto' is unknown; did you mean 'laptop'"):
        verdicts("lapto")
