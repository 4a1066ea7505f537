import inspect
import pickle
import pkgutil
from pathlib import Path

import pytest
import torch

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.config.scores import SCORE_KINDS
from stemrepro.evaluation.weights import device_of, load_folder, load_run
from stemrepro.training.train import train
from tests.conftest import quiet


def test_a_missing_run_and_foreign_weights_are_named(make_run):
    run = make_run("stem-full")
    with pytest.raises(UserError, match=r"weights\.safetensors is missing"):
        load_run(run)
    train(run, quiet)
    dense = make_run("dense")
    train(dense, quiet)
    run.weights.write_bytes(dense.weights.read_bytes())
    with pytest.raises(UserError, match=r"weights\.safetensors does not hold the weights of a model with .*ffn='stem'"):
        load_run(run)
    run.weights.write_bytes(dense.weights.read_bytes()[:-30])
    with pytest.raises(UserError, match="does not hold the weights"):
        load_run(run)


def test_weights_carry_the_settings_they_were_made_with(make_run):
    """Weights of the same shape that another run left, under settings that aren't theirs."""
    run, other = make_run("stem-full"), make_run("stem-full", seed=1)
    train(run, quiet)
    train(other, quiet)
    run.weights.write_bytes(other.weights.read_bytes())
    with pytest.raises(UserError, match=r"weights\.safetensors was made with other settings \(\w{12}, not \w{12}\)"):
        load_run(run)


def test_a_scale_of_gpus_is_not_scored_on_a_cpu_unasked(make_run):
    if torch.cuda.is_available():
        assert device_of("gpu").type == "cuda"
        return
    run = make_run("dense")
    train(run, quiet)
    with pytest.raises(UserError, match="the scale's accelerator is a GPU and torch sees none"):
        device_of("gpu")
    assert next(load_run(run).parameters()).device == device_of("cpu")


def test_weights_are_read_without_executing_anything(make_run, tmp_path):
    run = make_run("dense")
    train(run, quiet)
    bomb = (Path.touch, (tmp_path / "executed",))
    run.weights.write_bytes(pickle.dumps(type("Bomb", (), {"__reduce__": lambda self: bomb})()))
    with pytest.raises(UserError, match="does not hold the weights"):
        load_run(run)
    assert not (tmp_path / "executed").exists()


def test_a_run_of_other_settings_is_not_scored(make_run):
    run = make_run("stem-full")
    train(run, quiet)
    assert load_run(run).config == run.model
    with pytest.raises(UserError, match=r"\(training\.table_rate_factor: 1\.0 there, 3\.0 requested\); train it again"):
        load_run(make_run("stem-full", table_rate_factor=3.0))


def test_a_run_folder_tells_its_model(make_run):
    run = make_run("stem-half")
    train(run, quiet)
    model, sequence = load_folder(run.folder)
    assert (model.config, sequence) == (run.model, 32)
    (run.folder / "config.yaml").write_text("arm: stem-half\nmodel: {ffn: poem}")
    for folder in (run.folder, run.folder.parent / "seed9"):
        with pytest.raises(UserError, match=r"config\.yaml is missing or damaged"):
            load_folder(folder)


@pytest.mark.parametrize("part", sorted(SCORE_KINDS.keys() - {"losses"}))
def test_a_run_that_diverged_has_no_scores(make_run, part):
    """But losses of its training, which test_losses.py has."""
    run, score = make_run("dense"), pkgutil.resolve_name(f"stemrepro.evaluation.{part}:score")
    write_json(run.folder / "diverged.json", {"step": 3})
    assert len(score(run, quiet, **dict.fromkeys([*inspect.signature(score).parameters][2:]))) == 0
