"""A pilot's rate in a scale's file and in the plan."""

import shutil

import pandas as pd
import pytest
import yaml

from benchmarks.pilot_rate import PILOT, main, take
from stemrepro.pipeline import plan
from stemrepro.pipeline.planned import read_params
from stemrepro.sweeps.results import best_table
from stemrepro.sweeps.spec import read_sweep
from tests.conftest import ROOT, TINY


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of a planned scale, with a pilot that has its best within."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    file = tmp_path / "recipes/scales/tiny.yaml"
    file.write_text("# first\n" + yaml.safe_dump(TINY) + "# last\n")
    plan.write("tiny", ("angular_spread",))
    rates = read_sweep(tmp_path / f"recipes/sweeps/{PILOT}.yaml").space["learning_rate"]
    table = pd.DataFrame({"arm": "dense", "learning_rate": rates, "seed": 100, "prose": [3.0, 2.5, 2.75, float("inf")],
                          "state": "complete"})  # fmt: skip
    folder = tmp_path / f"results/tiny/sweeps/{PILOT}"
    folder.mkdir(parents=True)
    best_table(table, {"learning_rate": rates}).to_csv(folder / "best.csv", index=False)
    return file


def test_a_pilots_best_rate_is_that_of_all_runs(file, capsys):
    before, old = file.read_text(), read_params()
    main("tiny")
    assert file.read_text() == before.replace("learning_rate: 0.01\n", "learning_rate: 0.002\n")
    assert capsys.readouterr().out == "recipes/scales/tiny.yaml: learning_rate 0.002\n"
    new = read_params()
    assert new.recipe_names == old.recipe_names == ("angular_spread",)
    rates = {run.training.learning_rate for run in new.planned("tiny").values()}
    assert rates == {0.2 * run.training.learning_rate for run in old.planned("tiny").values()} == {0.002}


def test_a_scale_without_a_rate_of_its_own_stays_as_it_is(file):
    file.write_text(file.read_text().replace("learning_rate: 0.01\n", ""))
    before = file.read_text()
    with pytest.raises(ValueError, match="has no line 'learning_rate"):
        take("tiny", file, 0.002)
    assert file.read_text() == before
