"""Best settings, edges and figures of tables of trials with a right answer."""

import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import yaml

from stemrepro.common.yaml_records import parse
from stemrepro.config.scale import TunedSettings
from stemrepro.sweeps.results import best_settings, draw_rates, draw_trials, ended, tuned_lines, write_results
from stemrepro.sweeps.trials import Range, Sweep, read_sweep
from tests.conftest import ROOT
from tests.report.test_style import USERS

RATES = [0.005, 0.01, 0.02]
COMMITTED = sorted(path.parent for path in ROOT.glob("results/*/sweeps/*/data.csv"))


def trials(arm, loss, seed=100, **values):
    """Every combination of values, with loss(*combination)."""
    rows = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    table = pd.DataFrame([{"arm": arm} | row | {"seed": seed, "prose": loss(**row)} for row in rows])
    table["state"] = np.where(np.isfinite(table["prose"]), "complete", "diverged")
    return table.reset_index(names="number")


@pytest.mark.parametrize(
    ("best", "end"), [(0.005, "lowest"), (0.02, "highest"), (0.01, None), (0.004, "lowest"), (0.05, "highest")]
)
def test_the_best_of_a_grid_at_its_first_or_last_value(best, end):
    table = trials("dense", lambda learning_rate: 4 + abs(np.log(learning_rate / best)), learning_rate=RATES)
    (found,) = best_settings(table, {"learning_rate": tuple(RATES)}).to_dict("records")
    assert found["learning_rate"] == min(RATES, key=lambda rate: abs(np.log(rate / best)))
    assert found["at_edge"] == (f"learning_rate {end}" if end else "")


def test_an_arm_has_edges_in_fields_that_it_has():
    """Dense is tried at one table factor, and a name has no order."""

    def loss(learning_rate, table_rate_factor, placement):
        return 4 + abs(learning_rate - 0.01) + 1 / table_rate_factor

    stem = trials("stem", loss, learning_rate=RATES, table_rate_factor=[1.0, 2.0], placement=["full", "third"])
    fields = {"learning_rate": RATES, "table_rate_factor": [1.0], "placement": "-"}
    dense = trials("dense", lambda **at: at["learning_rate"], **fields)
    best = best_settings(pd.concat([stem, dense], ignore_index=True), {}).set_index("arm")["at_edge"]
    assert best.to_dict() == {"dense": "learning_rate lowest", "stem": "table_rate_factor highest"}


@pytest.mark.parametrize(
    ("best", "log", "end"),
    [(0.00105, True, "lowest"), (0.01, True, None), (0.01, False, "lowest"), (0.96, False, "highest")],
)
def test_near_the_end_of_a_range(best, log, end):
    """From 0.001 to 1: 0.00105 is 0.7% of the way in its logarithm, 0.01 a third of it or plainly 0.9%."""
    table = trials("dense", lambda warmup: abs(warmup - best), warmup=[0.05, best, 0.5])
    found = best_settings(table, {"warmup": Range(low=0.001, high=1.0, log=log)})["at_edge"].tolist()
    assert found == [f"warmup {end}" if end else ""]


def test_one_seed_that_diverged_is_enough_and_pruned_runs_and_lost_arms_have_no_best():
    """0.02 is better on one seed and lost the other; 0.03 was stopped at a lower loss."""
    rates, losses = [0.01, 0.01, 0.02, 0.02, 0.03, 0.01, 0.02], [4.1, 4.0, 3.9, np.inf, 3.0, np.inf, np.inf]
    table = pd.DataFrame({"arm": 5 * ["dense"] + 2 * ["blend"], "learning_rate": rates, "seed": [0, 1, 0, 1, 0, 0, 0]})
    table["prose"] = losses
    table["state"] = ["complete" if loss < 9 else "diverged" for loss in table["prose"]]
    table.loc[4, "state"] = "pruned"
    best = best_settings(table, {})
    assert best[["arm", "learning_rate"]].to_numpy().tolist() == [["dense", 0.01]]
    assert best["prose"].item() == pytest.approx(4.05)


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed_bests_follow_from_committed_trials(folder):
    sweep = read_sweep(ROOT / f"recipes/sweeps/{folder.name}.yaml")
    table = pd.read_csv(folder / "data.csv")
    found = best_settings(table, sweep.space).to_csv(index=False, float_format="%.6g")
    assert found == (folder / "best.csv").read_text()
    if sweep.sampler == "grid":  # what is committed is what the file asks for
        asked = {(arm, rate) for arm in sweep.space["arm"] for rate in sweep.space["learning_rate"]}
        assert set(zip(table["arm"], table["learning_rate"], strict=True)) == asked


def test_the_best_settings_as_lines_of_a_scale_are_read_back():
    keys = ["arm", "learning_rate", "table_rate_factor", "table_init", "prose"]
    best = pd.DataFrame([("dense", 0.016, 1.0, "xavier", 4.0), ("mine", 0.0115815777, 4.0, "small", 3.9)], columns=keys)
    read = yaml.safe_load("\n".join(["tuned:", *tuned_lines(best)]))["tuned"]
    assert TunedSettings(**read["dense"]) == TunedSettings(learning_rate=0.016, table_init="xavier")
    mine = TunedSettings(learning_rate=0.0115816, table_rate_factor=4.0, table_init="small")
    assert TunedSettings(**read["mine"]) == mine


SPACE = "{arm: [dense, stem], learning_rate: {low: 0.01, high: 0.1, log: true}, warmup: {low: 0, high: 1}, seed: [0]}"


@pytest.fixture
def search():
    """Two arms whose loss follows from the learning rate, with a trial that diverged and one that was pruned."""
    values = {"learning_rate": [0.01, 0.02, 0.04, 0.08], "warmup": [0.1, 0.2, 0.3]}
    dense = trials("dense", lambda learning_rate, warmup: 4 + learning_rate, **values)
    stem = trials("stem", lambda learning_rate, warmup: 3 + learning_rate, **values)
    table = pd.concat([dense, stem], ignore_index=True)
    table.loc[0, ["prose", "state"]] = np.inf, "diverged"
    table.loc[13, ["prose", "state"]] = 1.0, "pruned"
    return parse(Sweep, {"title": "t", "sampler": "tpe", "trials": 12, "space": yaml.safe_load(SPACE)}, Path()), table


def test_the_figure_shows_each_trial_that_ended_and_the_best(search):
    sweep, table = search
    rows, best = ended(table), best_settings(table, sweep.space)
    axes = draw_trials(rows, best).axes[0]
    assert len(rows) == len(table) - 2
    dots, rings = (np.asarray(collection.get_offsets()) for collection in axes.collections)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["dense", "stem"]
    places = rows["arm"].map(["dense", "stem"].index)
    excess = rows["prose"] - rows["arm"].map({"dense": 4.01, "stem": 3.01})
    drawn = np.column_stack([dots, axes.collections[0].get_array()]).tolist()
    expected = np.column_stack([rows["learning_rate"], places, excess]).tolist()
    assert np.array(sorted(drawn)) == pytest.approx(np.array(sorted(expected)))
    assert rings == pytest.approx(np.array([[0.01, 0], [0.01, 1]]))
    words = [text.get_text() for text in axes.texts]
    assert words == best["at_edge"].str.replace("_", " ").tolist()


@pytest.mark.slow
def test_figures_are_the_same_bytes_each_time_and_none_are_drawn_of_nothing(search, tmp_path):
    sweep, table = search
    write_results(sweep, table, tmp_path / "a")
    with mpl.rc_context(USERS):
        write_results(sweep, table, tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    write_results(sweep, table.assign(prose=np.inf, state="diverged"), tmp_path / "c")
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"data.csv", "best.csv"}


def test_rates_are_a_line():
    table = trials("dense", lambda learning_rate: 4 + learning_rate, learning_rate=RATES)
    (line,) = draw_rates(ended(table)).axes[0].lines
    assert line.get_xydata() == pytest.approx(table[["learning_rate", "prose"]].to_numpy())
