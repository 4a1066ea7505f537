"""Shares and edits of a published model from made-up tables, against closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.measures.conversion import Conversion
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.model_edits import ModelEdits, over_countries
from stemrepro.measures.premise import WHAT, Premise
from stemrepro.verdicts.contrast import jackknife

LAYERS, SEQUENCES = 6, 5


@pytest.fixture
def premise(catalog, tmp_path):
    """Rows explain 90% less 10 points a layer of W_u x, and half of that of all else."""
    folder = tmp_path / "premise"
    folder.mkdir()
    rows = [
        {"budget": budget, "layer": layer, "what": what, "address": "token", "sequence": sequence, "source": "plays",
         "total": 1.0 + sequence,
         "left": (1.0 + sequence) * (1 - (0.9 - 0.1 * layer) * (1 if what == "W_u x" else 0.5))}
        for budget in (100, 200) for layer in range(LAYERS) for what in WHAT.values() for sequence in range(SEQUENCES)
    ]  # fmt: skip
    for budget, part in pd.DataFrame(rows).groupby("budget"):
        part.to_parquet(folder / f"shares-{budget}.parquet")
    costs = [
        {"layer": layer, "sequence": k, "source": "plays", "tokens": 10, "nats": 20 + k + layer, "dense": 20 + k,
         "kl": 1}
        for layer in range(LAYERS) for k in range(SEQUENCES)
    ]  # fmt: skip
    pd.DataFrame(costs).to_parquet(folder / "costs.parquet")
    return Premise(Inputs("premise", catalog, "smollm2", tmp_path))


def test_shares_are_means_over_layers(premise):
    assert premise.contrast("token", "half", "explained:up:third").mean == pytest.approx(
        (80 + 50) / 2 - 50
    )  # layers 1, 4
    assert premise.contrast("token", "token", "over-gate:third").mean == pytest.approx((80 + 50) / 4)
    assert premise.contrast("token", "token", "falls:up").mean == pytest.approx((90 + 80) / 2 - (50 + 40) / 2)
    assert premise.contrast("token", "dense", "cost:full").mean == pytest.approx(np.mean([1, 2, 3, 4, 5]) / 10)
    assert premise.contrast("token", "dense", "cost:full").over == "sequences"


def test_a_jackknife_of_means_is_the_t_interval():
    values = np.array([1.0, 2.0, 4.0, 7.0])
    one = jackknife(lambda kept: float(kept.mean()), values, "texts")
    assert one.differences == pytest.approx(values)
    assert one.interval(0.05) == pytest.approx(stats.t.interval(0.95, 3, values.mean(), stats.sem(values)))


def test_pairs_are_left_out_by_country():
    """By hand: without a country only the pairs of the two others are left; the interval is on logits."""
    pairs = pd.MultiIndex.from_tuples([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("a", "c"), ("c", "a")])
    values = pd.Series([100.0, 0.0, 100.0, 100.0, 0.0, 0.0], index=pairs)
    one = over_countries(values)
    assert (one.mean, one.over, one.seeds) == (pytest.approx(50), "countries", 3)
    without = np.log([2.5 / 0.5, 0.5 / 2.5, 1.5 / 1.5])  # without a, b and c
    error = max(np.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum()), 1 / 3.5 + 1 / 3.5)
    ends = stats.t.ppf(0.975, 2) * error * np.array([-1, 1])
    assert one.interval(0.05) == pytest.approx(100 / (1 + np.exp(-ends)))
    none = over_countries(values * 0, values)  # a difference never leaves the scale
    assert none.mean == pytest.approx(-50)
    assert -100 < none.interval(0.01)[0] < none.interval(0.01)[1] < 100
    assert over_countries(values * 0).interval(0.05)[1] > 1  # of six pairs none: one more would have moved it


def test_edits_are_compared_pair_by_pair(catalog, tmp_path):
    folder = tmp_path / "edits"
    folder.mkdir()
    names = [(a, b) for a in "abcd" for b in "abcd" if a != b]
    rates = {
        ("rows", "full"): 9,
        ("rows", "all"): 12,
        ("chance", "full"): 3,
        ("patched", "full"): 6,
        ("input", "all"): 12,
    }
    rows = [
        {"relation": "capital", "model": "published", "method": method, "layers": layers, "source": a, "target": b,
         "success": int(number < count), "kept": 0, "new": 0.0, "old": 0.0}
        for (method, layers), count in rates.items() for number, (a, b) in enumerate(names)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "edits-capital.parquet")
    pd.DataFrame({"said": ["before"]}).to_parquet(folder / "examples.parquet")
    harm = [("all", 0, 10, 21, 20), ("all", 0, 10, 22, 20), ("all", 1, 20, 41, 40)]
    columns = ["layers", "sequence", "tokens", "nats", "dense"]
    pd.DataFrame(harm, columns=columns).to_parquet(folder / "damage.parquet")
    measure = ModelEdits(Inputs("model_editing", catalog, "smollm2", tmp_path))
    for arms, metric, mean in (
        (("rows", "chance"), "success:full", 50), (("patched", "rows"), "success:full", -25),
        (("rows", "input"), "over-input:full", -25), (("rows", "rows"), "layers:all>full", 25),
    ):  # fmt: skip
        contrast = measure.contrast(*arms, metric)
        whole = measure.of(arms[0], "all" if ">" in metric else "full").mean()
        assert 0 <= whole <= 100
        assert contrast.mean == pytest.approx(mean)
    assert measure.contrast("rows", "dense", "damage:all").mean == pytest.approx((1 + 2 + 1) / (10 + 10 + 20))


def test_a_conversion_is_what_it_costs_and_what_training_gives_back(catalog, tmp_path):
    folder, text = tmp_path / "conversion", {"sequence": [0, 1], "source": "plays", "tokens": [10, 30]}
    folder.mkdir()

    def losses(nats, **about):
        return pd.DataFrame(text | {"nats": nats}).assign(**about)

    once = {("none", "dense"): [20, 60], ("third", "rows"): [30, 90], ("third", "one-row"): [60, 140],
            ("early", "rows"): [50, 90], ("late", "rows"): [30, 70]}  # fmt: skip
    tables = [losses(nats, placement=placement, kind=kind) for (placement, kind), nats in once.items()]
    pd.concat(tables).to_parquet(folder / "at-once.parquet")
    prior = {("linear", 2.0): [30, 90], ("mean", 2.0): [32, 92]}
    pd.concat(losses(nats, placement="third", prior=name, few=few) for (name, few), nats in prior.items()).to_parquet(
        folder / "priors.parquet"
    )
    after = {("dense", 0): [20, 60], ("third", 0): [30, 90], ("dense", 8): [18, 58], ("third", 8): [20, 66]}
    pd.concat(losses(nats, arm=arm, step=step) for (arm, step), nats in after.items()).to_parquet(
        folder / "trained-all.parquet"
    )
    measure = Conversion(Inputs("conversion", catalog, "smollm2", tmp_path))
    assert measure.cost("third").mean == pytest.approx((10 + 30) / 40)
    assert measure.contrast("one-row", "rows", "loss:third").mean == pytest.approx((30 + 50) / 40)
    assert measure.contrast("rows", "rows", "layers:early>late").mean == pytest.approx((20 + 20) / 40)
    assert measure.contrast("third", "dense", "trained").mean == pytest.approx((2 + 8) / 40)
    assert measure.contrast("third", "half", "given-back").mean == pytest.approx(100 * (1 - 10 / 40) - 50)
    assert measure.prior("third", "mean", 2.0).mean == pytest.approx(4 / 40)
    assert measure.gain(8).mean == pytest.approx(4 / 40)
