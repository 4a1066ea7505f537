"""What a command says at its end, against numbers counted by hand."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from stemrepro.cli.summary import loss_at_end, losses_of_runs, losses_of_scores, verdicts
from stemrepro.config.address import MAIN, Address
from stemrepro.measures import store
from tests.conftest import ROOT


def run(folder, arm="dense", variant=MAIN, shift=0.0, whole=True, diverged=None):
    """A run folder whose validation at the end is 4.5 + shift on prose, unless it is cut short before."""
    folder.mkdir(parents=True)
    losses = {"bible": 4.0 + shift, "plays": 5.0 + shift, "dictionary": 99.0}
    rows = [{"step": 1, "loss": 9.0}, *([{"step": 2, "loss": 5.0, "validation": losses}] if whole else [])]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SimpleNamespace(folder=folder, address=Address(variant, arm), diverged=diverged)


def plain(text):
    return " ".join(text.split())


def test_a_runs_loss_is_its_last_validation_of_prose(tmp_path):
    assert loss_at_end(run(tmp_path / "whole")) == pytest.approx(4.5)
    assert loss_at_end(run(tmp_path / "cut", whole=False)) is None
    assert loss_at_end(SimpleNamespace(folder=tmp_path / "none")) is None


def test_runs_by_arm_with_what_seeds_differ_by(tmp_path):
    """4.4, 4.5 and 4.6 have mean 4.5 and standard deviation 0.1; a run that diverged has no loss."""
    runs = [run(tmp_path / f"dense{n}", shift=shift) for n, shift in enumerate((-0.1, 0.0, 0.1))]
    runs += [run(tmp_path / "full", "stem-full", "half", -1.0), run(tmp_path / "bad", diverged=3)]
    text = plain(losses_of_runs(runs, Path("runs/tiny")))
    assert text.startswith("trained, in runs/tiny/; ")
    assert text.endswith(": dense 4.500 +- 0.100 (3), stem-full@half 3.500 (1)")


def test_scored_losses_are_those_of_the_scores():
    """Of committed scores: the mean is that of the protocol; an arm without scores isn't named."""
    folder = ROOT / "scores/laptop"
    about = store.about(folder, "losses", Address(MAIN, "dense"))
    text = plain(losses_of_scores([Address(MAIN, "dense"), Address(MAIN, "none-such")], folder))
    expected = rf": dense {about['loss']['prose']['nats_per_token']:.3f} \+- 0\.\d{{3}} \({about['seeds']}\)$"
    assert re.search(expected, text), text


def test_verdicts_are_counted_by_whose_claims_they_are():
    rows = [{"verdict": "supported", "origin": origin} for origin in ("paper", "paper", "control")]
    text = plain(verdicts([*rows, {"verdict": "undecided", "origin": "paper"}], [Path("results/tiny/rivals")]))
    counts = "the paper's results: 2 supported, 1 undecided; our own questions: 1 supported"
    assert text == f"4 claims; {counts}; in results/tiny/rivals/"
