"""What decides whether another commit's runs are kept; the tool itself trains for two minutes (docs/method.md)."""

from dataclasses import replace

import pytest
import yaml
from safetensors.torch import load_file, safe_open

from benchmarks.same_losses import adopt, difference
from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, read_json
from stemrepro.evaluation.weights import load_run
from stemrepro.training.checkpoint import beginning_of
from stemrepro.training.run import InitFrom, Run
from stemrepro.training.train import train
from tests.conftest import quiet


def test_differences_are_named_bit_by_bit():
    before = {"loss": [1.0, 0.5], "norm": [2.0, 3.0], "weights": "a"}
    assert difference(before, dict(before)) == ""
    assert difference(before, before | {"loss": [1.0, 0.5 + 1e-16 + 2**-53]}).startswith("loss differs from step 2 on")
    assert difference(before, before | {"norm": [2.1, 3.0]}).startswith("norm differs from step 1 on")
    assert difference(before, before | {"weights": "b"}) == "the final weights differ"


@pytest.fixture
def older(make_run, monkeypatch):
    """A run that older code made."""
    run = make_run("stem-third")
    with monkeypatch.context() as then:
        then.setattr(Run, "code", "older")
        train(run, quiet)
    return run


def test_runs_of_bit_equal_arms_are_kept_with_their_weights(older):
    with pytest.raises(UserError, match="code: older there"):
        load_run(older)
    before = load_file(older.weights)
    assert adopt([older], {"stem-third": "older"}) == [older]
    assert older.other_settings() == ""
    assert load_run(older)
    assert read_json(older.folder / "provenance.json")["params_hash"] == older.params_hash
    assert all((value == before[name]).all() for name, value in load_file(older.weights).items())
    assert adopt([older], {"stem-third": "older"}) == []


def test_others_resume_from_an_adopted_run(make_run, monkeypatch):
    parent = replace(make_run("stem-third"), keep_final_checkpoint=True)
    with monkeypatch.context() as then:
        then.setattr(Run, "code", "older")
        train(parent, quiet)
    child = replace(
        parent, folder=parent.folder / "child", init_from=InitFrom(parent.folder, digest(parent.config), "kept", 0)
    )
    with pytest.raises(UserError, match="made with other settings"):
        beginning_of(child)
    assert adopt([parent], {"stem-third": "older"}) == [parent]
    assert beginning_of(child)["global_step"] == parent.training.steps


def test_nothing_else_is_adopted(older):
    def recorded():
        with safe_open(older.weights, "pt") as opened:
            return yaml.safe_load((older.folder / "config.yaml").read_text())["code"], opened.metadata()["config"]

    before = recorded()
    assert adopt([older], {"stem-third": "another"}) == []  # made by other code
    assert adopt([older], {"dense": "older"}) == []  # an arm that isn't bit-equal
    other = replace(older, training=older.training.model_copy(update={"clip": 2.0}))
    assert adopt([other], {"stem-third": "older"}) == []  # other settings too
    assert recorded() == before
