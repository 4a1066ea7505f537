"""Shares by size and budget from a made-up table, against closed forms; the figure."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.measures import premise_by_size
from stemrepro.measures.premise import WHAT
from stemrepro.measures.scores import Scores
from stemrepro.report.style import use_style
from stemrepro.verdicts.effect import Unmeasured
from tests.conftest import ROOT
from tests.made_up import grid

LEVEL = {"main": 80, "quarter": 90, "double": 70, "double-quarter": 85, "fourfold": 60, "fourfold-quarter": 75}
NOISE = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


@pytest.fixture
def scores(catalog, tmp_path):
    """A token explains LEVEL% of W_u x in layer 1 and 2 points less in each further one, and half of that of W_g x."""
    folder = tmp_path / "sizes"
    (folder / "sizes").mkdir(parents=True)
    axes = {"variant": LEVEL, "seed": range(len(NOISE)), "layer": range(6), "what": (WHAT["up"], WHAT["gate"])}
    rows = grid(**axes, address=("token", "limit"))
    level = rows["variant"].map(LEVEL) + NOISE[rows["seed"]] - 2 * (rows["layer"] - 1)
    rows = rows.assign(total=10.0, left=10 - level * np.where(rows["what"] == "W_u x", 0.1, 0.05))
    rows.sample(frac=1, random_state=0).to_parquet(folder / "sizes/shares.parquet")
    return Scores("premise_by_size", catalog, "sizes", folder)


def test_shares_are_means_over_layers_by_seed(scores):
    half = premise_by_size.explained(scores, "dense", "dense", "up", "third", at="fourfold")  # layers 1 and 4
    assert half.differences == pytest.approx(60 + NOISE - 3 - 50)
    gate = premise_by_size.explained(scores, "dense", "dense", "gate", "full")
    assert gate.mean == pytest.approx((80 - 4) / 2 - 50)
    lost = premise_by_size.lost(scores, "dense", "dense", "up", "full", at="fourfold-quarter", over="fourfold")
    assert (lost.mean, lost.paired) == (pytest.approx(15), False)
    error = np.sqrt(2 * np.var(NOISE, ddof=1) / 5)
    wanted = 15 + stats.t.ppf([0.005, 0.995], 8) * error
    assert lost.interval(0.01) == pytest.approx(wanted)
    with pytest.raises(Unmeasured, match=r"shares\.parquet has nothing of variant 'width-16'"):
        premise_by_size.shares(scores, "width-16")


def test_the_figure_has_all_sizes_and_the_published_model(scores):
    use_style(scores.catalog.arms)
    premise = scores.folder.parent / "smollm2/premise"
    premise.mkdir(parents=True)
    assert premise_by_size.published(scores) == []
    about = {"budget": 9, "what": WHAT["up"], "address": "limit", "source": "plays", "total": 4.0}
    shares = [about | {"layer": layer, "sequence": n, "left": 1.0 + layer} for layer in range(3) for n in range(4)]
    pd.DataFrame(shares).to_parquet(premise / "shares.parquet")
    spec = importlib.util.spec_from_file_location("drawn", ROOT / "analysis/premise_by_size.py")
    drawn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawn)
    data = drawn.collect(scores)
    assert data[data["what"] == "up, limit, published"]["value"].tolist() == pytest.approx([75, 50, 25])
    budget = data[data["panel"] == "by budget"].set_index(["what", "x"])["value"]
    assert budget["width 128", 819_200] == pytest.approx(60 - 4)
    assert budget["width 32", 204_800] == pytest.approx(90 - 4)
    figure = drawn.draw(data, scores)
    named = {text.get_text() for text in figure.axes[0].texts}
    assert named == {"width 32", "width 64", "width 128", drawn.PUBLISHED}
