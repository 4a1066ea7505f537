import pickle
from pathlib import Path

import pytest

from stemrepro.errors import UserError
from stemrepro.evaluation.weights import load_run, recorded_shape
from stemrepro.training.train import train
from tests.conftest import quiet


def test_a_missing_run_and_foreign_weights_are_named(make_run):
    run = make_run("stem-full")
    with pytest.raises(UserError, match=r"weights\.safetensors is missing"):
        load_run(run)
    dense = make_run("dense")
    train(dense, quiet)
    run.folder.mkdir(parents=True)
    run.weights.write_bytes(dense.weights.read_bytes())
    with pytest.raises(UserError, match=r"weights\.safetensors does not hold the weights of a model with .*ffn='stem'"):
        load_run(run)
    run.weights.write_bytes(dense.weights.read_bytes()[:-30])
    with pytest.raises(UserError, match="does not hold the weights"):
        load_run(run)


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
    with pytest.raises(
        UserError, match=r"other settings \(arm\.table_rate_factor: 1\.0 there, 3\.0 asked\); train it again"
    ):
        load_run(make_run("stem-full", table_rate_factor=3.0))


def test_a_run_folder_tells_its_shape(make_run):
    run = make_run("stem-half")
    train(run, quiet)
    assert recorded_shape(run.folder) == (run.model, 32)
    (run.folder / "config.yaml").write_text("arm: {name: stem-half, ffn: poem}\nmodel: {}")
    with pytest.raises(UserError, match=r"config\.yaml is missing or damaged"):
        recorded_shape(run.folder)
