"""Spread and context of a published model from made-up tables, against closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.measures import model_capacity, model_spread
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import grid

LAYERS, GROUPS = 4, 5
P95 = {("dense", "up"): 0.5, ("rows", "up"): 0.4, ("random", "up"): 0.1}
P95 |= {("dense", "gated"): 0.2, ("rows", "gated"): 0.3}


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")


@pytest.fixture
def spread(catalog, tmp_path):
    """A group adds 0.01, a layer multiplies, the first is far off, and centred vectors have half."""
    rows = []
    for (side, what), p95 in P95.items():
        part = grid(group=range(GROUPS), layer=range(LAYERS), centred=(False, True)).assign(side=side, what=what)
        value = p95 * part["layer"] / 2 + 0.01 * part["group"] * (side == "dense")
        rows.append(part.assign(p95=value.where(part["layer"] > 0, 9) * np.where(part["centred"], 0.5, 1)))
    rows = pd.concat(rows).assign(width=576, ffn_width=1536)
    write(tmp_path / "spread", "cosines", rows)
    return Scores("model_spread", catalog, "smollm2", tmp_path)


def test_percentiles_are_compared_by_group_in_all_layers_but_the_first(spread):
    up = model_spread.p95(spread, "dense", "rows", "up")
    expected = 0.1 + 0.01 * np.arange(GROUPS)  # layers 1 to 3 are 1 in the mean
    assert up.differences == pytest.approx(expected)
    assert up.over == "groups"
    assert up.interval(0.01) == pytest.approx(stats.t.interval(0.99, GROUPS - 1, expected.mean(), stats.sem(expected)))
    assert model_spread.p95(spread, "dense", "rows", "up", centred=True).mean == pytest.approx(expected.mean() / 2)
    assert model_spread.p95(spread, "dense", "rows", "gated").mean == pytest.approx(-0.1 + 0.02)
    assert model_spread.over(spread, "rows", "random", "up", centred=True).mean == pytest.approx(3)
    with pytest.raises(Unmeasured, match="side 'random', what 'gated'"):
        model_spread.p95(spread, "rows", "random", "gated")


@pytest.fixture
def capacity(catalog, tmp_path):
    counts = grid(document=range(4), length=(128, 2048))[:-1]  # the last document is short
    counts = counts.assign(source="plays", width=100, ffn_width=300, layers=6, vocab=1000)
    length = counts["length"]
    write(
        tmp_path / "capacity",
        "counts",
        counts.assign(distinct=length // 4 + 10 * counts["document"], drawn=length // 2),
    )
    losses = grid(model=("dense", "third", "full"), document=range(4), context=(128, 512, 2048)).assign(source="plays")
    gain = losses["model"].map({"dense": 0.3, "third": 0.2, "full": 0.05})
    gain += 0.01 * losses["document"] * (losses["model"] == "full")
    write(tmp_path / "capacity", "losses", losses.assign(nats=4 - gain * np.log2(losses["context"] / 128)))
    return Scores("model_capacity", catalog, "smollm2", tmp_path)


def test_rows_touched_are_over_the_matrix_and_under_what_is_drawn(capacity):
    touched = model_capacity.touched(capacity, "stem", "dense", 2048)
    assert touched.differences == pytest.approx([4.12, 4.22, 4.32])  # 512, 522, 532 rows against a width of 100
    assert touched.over == "documents"
    assert model_capacity.repeated(capacity, "drawn", "stem", 2048).mean == pytest.approx(1 - 522 / 1024)


def test_worth_is_the_fall_of_the_loss_from_the_shortest_to_the_longest_context(capacity):
    assert model_capacity.worth_of(capacity, "dense", 512).tolist() == pytest.approx([0.6] * 4)
    assert model_capacity.worth(capacity, "third", "dense").mean == pytest.approx(-0.4)
    full = model_capacity.worth(capacity, "full", "dense")
    assert full.differences == pytest.approx([-1.0, -0.96, -0.92, -0.88])
    assert full.over == "documents"
    assert model_capacity.full_reads(capacity) is None
    model_capacity.losses(capacity, "full").iloc[:] += 10
    assert "6.9" in model_capacity.full_reads(capacity)
