"""The leaderboard's figure and ranks, on made-up losses whose order is given."""

import numpy as np
import pytest

from analysis.leaderboard import collect, draw
from stemrepro.measures.base import measured
from stemrepro.measures.catalog import load
from stemrepro.measures.inputs import Inputs
from stemrepro.report.style import settle, use_style
from tests.conftest import ROOT
from tests.made_up import write_arm
from tests.report.looks import faults


@pytest.fixture
def measure(tmp_path):
    """Losses of every arm, the first of the recipe the highest, each 0.05 nats below the one before."""
    catalog, rng = load(ROOT / "recipes"), np.random.default_rng(0)
    luck = rng.normal(0, 0.02, 5)
    for place, address in enumerate(catalog.recipe("leaderboard").wanted()):
        prose = {seed: 4.2 - 0.05 * place + luck[seed] + rng.normal(0, 0.002) for seed in range(5)}
        more = {"steps": 1188, "flops": 10.0, "parameters": 135_072 * (1 + place)}
        write_arm(tmp_path / "losses" / address.path, prose, tuple(range(5)), **more)
    use_style(catalog.arms)
    return measured(Inputs("leaderboard", catalog, "leaderboard", tmp_path))


def test_arms_stand_in_the_order_of_their_losses_with_the_ranks_that_are_drawn(measure):
    data = collect(measure)
    values = data.set_index(["panel", "what"])["value"]
    order = list(reversed(measure.arms))
    assert [int(values["rank, flops", arm]) for arm in order] == list(range(1, len(order) + 1))
    assert values["lead, flops", "dense"] == 0
    assert (values["lead, flops"].loc[order].diff().dropna() < 0).all()
    assert values["parameters, flops"].loc[list(measure.arms)].tolist() == list(range(1, len(order) + 1))
    figure = draw(data, measure)
    settle(figure)
    assert faults(figure) == []
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"rank", "1", str(len(order))} <= set(texts)
