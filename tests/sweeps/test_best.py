"""Best settings, edges and importances of tables of trials with a right answer."""

import itertools

import numpy as np
import pandas as pd
import pytest
import yaml

from stemrepro.config.scale import TunedSettings
from stemrepro.sweeps.best import Edge, edges, fields, importances, sentences, tuned_lines
from stemrepro.sweeps.results import best_table
from stemrepro.sweeps.spec import Range


def trials(arm, loss, seed=100, **values):
    """Every combination of values, with loss(*combination)."""
    rows = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    table = pd.DataFrame([{"arm": arm} | row | {"seed": seed, "prose": loss(**row)} for row in rows])
    return table.assign(state=np.where(np.isfinite(table["prose"]), "complete", "diverged"))


RATES = [0.005, 0.01, 0.02]


@pytest.mark.parametrize(
    ("best", "end"), [(0.005, "lowest"), (0.02, "highest"), (0.01, None), (0.004, "lowest"), (0.05, "highest")]
)
def test_the_best_of_a_grid_at_its_first_or_last_value(best, end):
    table = trials("dense", lambda learning_rate: 4 + abs(np.log(learning_rate / best)), learning_rate=RATES)
    ends = edges(table, {"arm": ("dense",), "learning_rate": tuple(RATES), "seed": (100,)})
    assert [(edge.key, edge.end) for edge in ends] == ([("learning_rate", end)] if end else [])
    assert [edge.place for edge in ends] == ([f"the {end} of the grid's 3"] if end else [])


def test_a_rate_beyond_which_runs_diverge_is_no_edge():
    table = trials(
        "dense", lambda learning_rate: 5 - learning_rate if learning_rate < 0.02 else np.inf, learning_rate=RATES
    )
    assert edges(table, {"learning_rate": tuple(RATES)}) == []


def test_an_arm_has_edges_in_fields_that_it_has():
    """Dense is tried at one table factor, and a name has no order."""

    def loss(learning_rate, table_rate_factor, placement):
        return 4 + abs(learning_rate - 0.01) + 1 / table_rate_factor

    stem = trials(
        "stem", loss,
        learning_rate=RATES, table_rate_factor=[1.0, 2.0], placement=["full", "third"],
    )  # fmt: skip
    dense = trials(
        "dense",
        lambda learning_rate, **_: learning_rate,
        learning_rate=RATES,
        table_rate_factor=[1.0],
        placement=["none"],
    )
    table = pd.concat([stem, dense], ignore_index=True)
    space = {"learning_rate": tuple(RATES), "table_rate_factor": (1.0, 2.0), "placement": ("full", "third")}
    assert fields(table, "dense") == ["learning_rate"]
    ends = {(edge.arm, edge.key, edge.end) for edge in edges(table, space)}
    assert ends == {("stem", "table_rate_factor", "highest"), ("dense", "learning_rate", "lowest")}
    best = best_table(table, space).set_index("arm")["at_edge"]
    assert best.to_dict() == {"dense": "learning_rate lowest", "stem": "table_rate_factor highest"}


@pytest.mark.parametrize(
    ("best", "log", "end"),
    [
        (0.00105, True, "lowest"),  # 0.7% of the way from 0.001 to 1 in its logarithm, 0.005% plainly
        (0.01, True, None),  # a third of the way in its logarithm
        (0.01, False, "lowest"),  # 0.9% of the way
        (0.96, False, "highest"),
        (0.94, False, None),
        (0.9, True, "highest"),  # 98% of the way
    ],
)
def test_near_the_end_of_a_range(best, log, end):
    table = trials("dense", lambda warmup: abs(warmup - best), warmup=[0.05, best, 0.5])
    ends = edges(table, {"warmup": Range(low=0.001, high=1.0, log=log)})
    assert [edge.end for edge in ends] == ([end] if end else [])
    assert [edge.place for edge in ends] == ([f"by the {end} of its range, 0.001 to 1"] if end else [])


def test_arms_of_which_the_same_is_to_be_said_share_a_sentence():
    alike = [Edge(arm, "learning_rate", 0.02, "highest", "the highest of the grid's 3") for arm in ("dense", "blend")]
    texts = sentences([*alike, Edge("dense", "warmup", 0.1, "lowest", "by the lowest of its range, 0.1 to 0.4")])
    assert texts == [
        "dense, blend: best at learning_rate 0.02, the highest of the grid's 3; a better one may lie beyond",
        "dense: best at warmup 0.1, by the lowest of its range, 0.1 to 0.4; a better one may lie beyond",
    ]


def test_the_field_that_decides_has_the_importance():
    """Losses that follow from one of two fields, of a grid and of a range; and of neither more than the other."""
    grid = {"learning_rate": [1.0, 2.0, 3.0, 4.0, 5.0], "table_rate_factor": [1.0, 2.0, 3.0, 4.0, 5.0]}
    one = trials("one", lambda learning_rate, table_rate_factor: learning_rate, **grid)
    other = trials("other", lambda learning_rate, table_rate_factor: table_rate_factor, **grid)
    both = trials("both", lambda learning_rate, table_rate_factor: learning_rate + table_rate_factor, **grid)
    table = pd.concat([one, other, both], ignore_index=True)
    for space in ({key: tuple(values) for key, values in grid.items()}, {key: Range(low=1, high=5) for key in grid}):
        shares = importances(table, space).pivot(index="arm", columns="field", values="importance")
        assert shares.sum(axis=1).to_numpy() == pytest.approx(1)
        assert shares.loc["one", "learning_rate"] > 0.95
        assert shares.loc["other", "table_rate_factor"] > 0.95
        assert shares.loc["both", "learning_rate"] == pytest.approx(0.5, abs=0.01)


def test_one_field_and_trials_that_all_came_out_the_same_have_no_importances():
    alone = trials("alone", lambda learning_rate: learning_rate, learning_rate=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    same = trials("same", lambda learning_rate, warmup: 4.0, learning_rate=[1.0, 2.0, 3.0], warmup=[0.1, 0.2])
    few = trials("few", lambda learning_rate, warmup: learning_rate, learning_rate=[1.0, 2.0], warmup=[0.1, 0.2])
    for table in (alone, same, few):
        assert importances(table, {}).empty


def test_the_best_settings_as_lines_of_a_scale_are_read_back():
    best = pd.DataFrame({
        "arm": ["dense", "mine"], "learning_rate": [0.016, 0.0115815777], "table_rate_factor": [1.0, 4.0],
        "table_init": ["xavier", "small"], "prose": [4.0, 3.9],
    })  # fmt: skip
    read = yaml.safe_load("\n".join(["tuned:", *tuned_lines(best)]))["tuned"]
    assert {arm: TunedSettings(**settings) for arm, settings in read.items()} == {
        "dense": TunedSettings(learning_rate=0.016, table_init="xavier"),
        "mine": TunedSettings(learning_rate=0.0115816, table_rate_factor=4.0, table_init="small"),
    }
    assert tuned_lines(best.drop(columns="learning_rate")) == []
