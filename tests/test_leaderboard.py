"""The leaderboard's figure and ranks, on made-up losses whose order is given."""

import numpy as np
import pytest

from analysis.leaderboard import collect, draw
from stemrepro.measures.base import measured
from stemrepro.measures.catalog import load
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.leaderboard import WIDEST
from stemrepro.report.style import settle, use_style
from tests.conftest import ROOT
from tests.made_up import write_arm
from tests.report.looks import faults

METHODS = 13
"""Arms that have ranks: all but the controls."""


@pytest.fixture
def measure(tmp_path):
    """Losses of every arm, the first of the recipe the highest, each 0.05 nats below the one before."""
    catalog, rng = load(ROOT / "recipes"), np.random.default_rng(0)
    order, luck = catalog.recipe("leaderboard").arms, rng.normal(0, 0.02, 5)
    for address in catalog.recipe("leaderboard").wanted():
        level = 4.2 - 0.05 * order.index(address.arm)
        prose = {seed: level + luck[seed] + rng.normal(0, 0.002) for seed in range(5)}
        steps = round(1188 * catalog.variant(address.variant).tokens)
        write_arm(tmp_path / "losses" / address.path, prose, tuple(range(5)), steps=steps)
    use_style(catalog.arms)
    return measured(Inputs("leaderboard", catalog, "leaderboard", tmp_path))


@pytest.mark.slow
def test_methods_stand_in_the_order_of_their_losses_with_the_ranks_that_are_drawn(measure):
    data = collect(measure)
    methods = [arm for arm in measure.arms if not measure.inputs.catalog.arms[arm].is_control]
    assert len(methods) == METHODS
    shapes = data[data["panel"] == "shape"].set_index(["what", "x"])["value"]
    assert list(shapes[shapes > WIDEST].index) == [("joint-token-mixture", "parameters")]
    for track in ("FLOPs", "parameters", "time", "FLOPs, width 16"):
        values = data[data["x"] == track].set_index(["panel", "what"])["value"]
        ranked = [arm for arm in values["lead"].index if arm in methods and values["shape", arm] <= WIDEST]
        assert values["rank"].loc[list(reversed(ranked))].tolist() == list(range(1, len(ranked) + 1))
        assert values["lead", "dense"] == 0
        assert set(values["rank"].index) == set(ranked)
    figure = draw(data, measure)
    settle(figure)
    assert faults(figure) == []
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"rank", "1", str(METHODS), "shape"} <= set(texts)


@pytest.mark.slow
def test_a_method_is_drawn_on_the_tracks_that_it_was_trained_on(measure):
    """As `stemrepro new recipe --leaderboard` has it: with dense alone, without a control, and its step untimed."""
    data = collect(measure)
    own = data[(data["x"] != "time") & data["what"].isin(["dense", "engram"])]
    figure = draw(own[(own["panel"] != "step time") | (own["what"] == "dense")], measure)
    settle(figure)
    assert faults(figure) == []
    titles = ["a  Equal FLOPs", "b  Equal size", "c  By parameters"]
    assert [axes.get_title("left") for axes in figure.axes] == titles


def test_costs_are_those_of_the_model_that_a_track_trains(measure):
    flops, size, time = (measure.costs("engram", track) for track in (None, "equal-size", "equal-time"))
    dense, stem = measure.costs("dense", None), measure.costs("stem-full", "equal-size")
    assert flops["FLOPs"] == pytest.approx(dense["FLOPs"], rel=0.005)
    assert size["parameters"] == pytest.approx(stem["parameters"], rel=0.005)
    assert time == flops
    assert (dense["step time"], dense["bytes of rows"]) == (1, 0)
    assert np.isnan(size["step time"])
    assert flops["bytes of rows"] == 2 * 2 * 2 * 8 * 2  # two layers, two n-grams, eight heads, rows of 2, 2 bytes


def test_a_claim_fails_where_the_frozen_rows_of_its_own_memory_are_ahead_of_dense(measure):
    for precondition in measure.preconditions:
        reason = measure.untestable("prose", precondition, 0.02)
        control = precondition.removeprefix("no-gain-of-")
        assert reason.startswith(f"{control}, whose rows hold nothing that was learnt of a token, ends 0.")
        assert measure.untestable("prose", precondition, 5.0) is None
