"""The leaderboard's figure and ranks, on made-up losses whose order is given."""

import numpy as np
import pandas as pd
import pytest

from analysis.leaderboard import NO_SHAPE, collect, draw
from stemrepro.cli.estimate import track_lines
from stemrepro.common.errors import UserError
from stemrepro.measures.base import requirement
from stemrepro.measures.catalog import load
from stemrepro.measures.leaderboard import FROZEN, SHAPES, costs, no_gain_of, places
from stemrepro.measures.protocol import check_one_plan
from stemrepro.measures.scores import Scores
from stemrepro.pipeline.plan import make_plan
from stemrepro.report.style import settle, use_style
from tests.conftest import ROOT
from tests.made_up import write_arms
from tests.report.looks import faults


@pytest.fixture
def scores(tmp_path):
    """Losses of every arm, the first of the recipe the highest, each 0.05 nats below the one before."""
    catalog, rng = load(ROOT / "recipes"), np.random.default_rng(0)
    order, luck, arms = catalog.recipe("leaderboard").arms, rng.normal(0, 0.02, 5), {}
    for address in catalog.recipe("leaderboard").wanted():
        level = 4.2 - 0.05 * order.index(address.arm)
        prose = [level + luck[seed] + rng.normal(0, 0.002) for seed in range(5)]
        arms[str(address)] = {"prose": prose, "steps": round(1188 * catalog.variant(address.variant).tokens)}
    write_arms(tmp_path, arms)
    use_style(catalog.arms)
    scores = Scores("leaderboard", catalog, "leaderboard", tmp_path)
    check_one_plan(scores)
    return scores


@pytest.mark.slow
def test_methods_stand_in_the_order_of_their_losses(scores):
    data = collect(scores)
    methods = [arm for arm in scores.recipe.arms if not scores.catalog.arms[arm].is_control]
    shapes = data[data["panel"] == "shape"].set_index(["what", "x"])["value"]
    odd = {place for place in shapes[~shapes.between(*SHAPES)].index if place[0] in methods}
    assert odd == {(arm, "parameters") for arm in ("joint-token-mixture", "joint-token", "engram", "over-encoding")}
    for track in ("FLOPs", "parameters", "time", "FLOPs, width 16"):
        values = data[data["x"] == track].set_index(["panel", "what"])["value"]
        ranked = [arm for arm in values["lead"].index if arm in methods and 2 <= values["shape", arm] <= 4]
        assert values["rank"].loc[list(reversed(ranked))].tolist() == list(range(1, len(ranked) + 1))
        assert values["lead", "dense"] == 0
        assert set(values["rank"].index) == set(ranked)
    figure = draw(data, scores)
    settle(figure)
    assert faults(figure) == []
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"rank", "1", str(len(methods)), NO_SHAPE} <= set(texts)


def test_a_plan_says_before_training_which_shapes_the_tracks_give():
    catalog = load(ROOT / "recipes")
    (line,) = track_lines(catalog, make_plan("leaderboard", (), catalog))
    head, _, told = line.partition(": ")
    assert head == "d_ff / width at equal-size"
    table = pd.read_csv(ROOT / "results/leaderboard.csv").query("track == 'parameters'").set_index("arm")
    shapes = dict(one.split() for one in told.split(", "))
    assert shapes == {arm: f"{value:.1f}" for arm, value in table["shape"].items()}


@pytest.mark.slow
def test_a_method_is_drawn_on_the_tracks_that_it_was_trained_on(scores):
    """As `stemrepro new recipe --leaderboard` has it: with dense alone, without a control, and its step untimed."""
    data = collect(scores)
    own = data[(data["x"] != "time") & data["what"].isin(["dense", "engram"])]
    figure = draw(own[(own["panel"] != "step time") | (own["what"] == "dense")], scores)
    settle(figure)
    assert faults(figure) == []
    assert [axes.get_title("left") for axes in figure.axes] == [
        "a  Equal FLOPs",
        "b  Equal size",
        "c  By bytes, equal FLOPs",
    ]


def test_costs_are_those_of_the_model_that_a_track_trains(scores):
    flops, size, time = (costs(scores, "engram", track) for track in ("own-rate", "equal-size", "equal-time"))
    dense, stem = costs(scores, "dense", "own-rate"), costs(scores, "stem-full", "equal-size")
    assert flops["FLOPs"] == pytest.approx(dense["FLOPs"], rel=0.005)
    assert size["parameters"] == pytest.approx(stem["parameters"], rel=0.005)
    assert time == flops
    assert (dense["step time"], dense["bytes of rows"]) == (1, 0)
    assert np.isnan(size["step time"])
    assert flops["bytes of rows"] == 2 * 2 * 2 * 8 * 2  # two layers, two n-grams, eight heads, rows of 2, 2 bytes


def test_a_claim_fails_where_frozen_rows_are_ahead_of_dense(scores):
    for control in FROZEN:
        reason = no_gain_of(scores, control, 0.02)
        assert reason.startswith(f"{control}, whose rows hold nothing that was learnt of a token, ends 0.")
        assert no_gain_of(scores, control, 5.0) is None
    claim = next(iter(scores.recipe.claims.values()))
    with pytest.raises(UserError, match="control 'stem-full' is unknown"):
        requirement({"no_gain_of": "stem-full"}, claim, scores.catalog, scores.recipe)


def test_trials_above_the_best_rates_were_stopped():
    """docs/leaderboard.md says so of every method's study."""
    study = pd.read_csv(ROOT / "results/leaderboard/sweeps/leaderboard/data.csv")
    best = pd.read_csv(ROOT / "results/leaderboard/sweeps/leaderboard/best.csv")
    above = study[study["learning_rate"] > best["learning_rate"].max() + 1e-9]
    assert set(above["arm"]) == set(best["arm"])
    assert set(above["state"]) == {"pruned"}


def test_without_the_bounds_of_shapes_nobody_is_alone_in_front_at_equal_size(catalog, monkeypatch):
    """docs/leaderboard.md says so; with them, which were set after the results, one method is."""
    committed = Scores("leaderboard", catalog, "leaderboard", ROOT / "scores/leaderboard")
    alone = [place.arm for place in places(committed, "equal-size") if place.worst == 1]
    monkeypatch.setattr("stemrepro.measures.leaderboard.SHAPES", (0.0, np.inf))
    free = Scores("leaderboard", catalog, "leaderboard", ROOT / "scores/leaderboard")
    assert (len(alone), [place.arm for place in places(free, "equal-size") if place.worst == 1]) == (1, [])


def test_few_other_points_of_the_studies_ran_to_the_end():
    """docs/leaderboard.md says at most one for each method with tables."""
    study = pd.read_csv(ROOT / "results/leaderboard/sweeps/leaderboard/data.csv").query("state == 'complete'")
    study = study[study["table_rate_factor"].notna() & ~study["arm"].isin(["dense", "hash-layers", "sparse-experts"])]
    first = study["learning_rate"].isin([0.008, 0.016, 0.032]) & study["table_rate_factor"].isin([1.0, 4.0])
    assert study[~first].groupby("arm").size().max() == 1


def test_the_tables_of_stem_third_are_a_quarter_larger_than_those_of_a_row():
    """README.md says so of the leaderboard at equal FLOPs."""
    rows = pd.read_csv(ROOT / "results/leaderboard.csv").query("track == 'FLOPs'").set_index("arm")
    tables = rows["parameters"] - rows["active_parameters"]
    assert tables["stem-third"] / tables["input-add"] == pytest.approx(1.25, rel=0.03)


def test_the_studies_had_unlike_initialisations_at_one_point():
    """docs/leaderboard.md names them."""
    study = pd.read_csv(ROOT / "results/leaderboard/sweeps/leaderboard/data.csv")
    point = study.query("state == 'complete' and learning_rate == 0.016 and table_rate_factor == 1")
    drawn = point.set_index("arm")["table_init"]
    assert set(drawn[["stem-full", "stem-third", "engram"]]) == {"xavier"}
    assert set(drawn[["mome", "joint-token-mixture", "gemma-ple"]]) == {"normal"}
