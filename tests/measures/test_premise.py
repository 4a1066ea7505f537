"""Shares and edits of a published model from made-up tables, against closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from stemrepro.measures import conversion, model_edits, premise
from stemrepro.measures.model_edits import over_countries
from stemrepro.measures.premise import WHAT
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Unmeasured, jackknife
from tests.made_up import grid

LAYERS, SEQUENCES = 6, 5


def write(folder, **tables):
    folder.mkdir()
    for name, rows in tables.items():
        pd.DataFrame(rows).to_parquet(folder / f"{name.replace('_', '-')}.parquet")


def test_shares_are_means_over_layers(catalog, tmp_path):
    """Rows explain 90% less 10 points a layer of W_u x, and half of that of all else; of half the text nothing."""
    shares = grid(budget=(100, 200), layer=range(LAYERS), what=WHAT.values(), sequence=range(SEQUENCES))
    told = (shares["budget"] == 200) * (0.9 - 0.1 * shares["layer"]) * np.where(shares["what"] == "W_u x", 1, 0.5)
    shares = shares.assign(address="token", source="plays", total=1.0 + shares["sequence"])
    shares["left"] = shares["total"] * (1 - told)
    costs = grid(layer=range(LAYERS), sequence=range(SEQUENCES)).assign(source="plays", tokens=10, kl=1)
    costs["dense"] = 20 + costs["sequence"]
    costs["nats"] = costs["dense"] + costs["layer"]
    write(tmp_path / "premise", shares=shares, costs=costs)
    scores = Scores("premise", catalog, "smollm2", tmp_path)
    third = premise.explained(scores, "token", "half", "up", "third")  # layers 1 and 4
    assert third.mean == pytest.approx((80 + 50) / 2 - 50)
    assert premise.over_gate(scores, "token", "token", "third").mean == pytest.approx((80 + 50) / 4)
    assert premise.falls(scores, "token", "token", "up").mean == pytest.approx((90 + 80) / 2 - (50 + 40) / 2)
    assert premise.share(scores, "up", "token", [0], 100).mean == pytest.approx(0)
    cost = premise.cost(scores, "token", "dense", "full")
    assert cost.mean == pytest.approx(np.mean([1, 2, 3, 4, 5]) / 10)
    assert cost.over == "sequences"


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
    names = [(a, b) for a in "abcd" for b in "abcd" if a != b]
    rates = {
        ("rows", "full"): 9,
        ("rows", "all"): 12,
        ("chance", "full"): 3,
        ("patched", "full"): 6,
        ("input", "all"): 12,
    }
    edits = [(*asked, *pair, int(k < count)) for asked, count in rates.items() for k, pair in enumerate(names)]
    edits = pd.DataFrame(edits, columns=["method", "layers", "source", "target", "success"])
    edits = edits.assign(relation="capital", model="published", kept=0, new=0.0, old=0.0)
    harm = [("all", 0, 10, 21, 20), ("all", 0, 10, 22, 20), ("all", 1, 20, 41, 40)]
    damage = pd.DataFrame(harm, columns=["layers", "sequence", "tokens", "nats", "dense"])
    write(tmp_path / "edits", edits=edits, damage=damage)
    scores = Scores("model_editing", catalog, "smollm2", tmp_path)
    for effect, mean in (
        (model_edits.success(scores, "rows", "chance", "full"), 50),
        (model_edits.success(scores, "patched", "rows", "full"), -25),
        (model_edits.over_input(scores, "rows", "input", "full"), -25),
        (model_edits.layers(scores, "rows", "rows", "all", "full"), 25),
    ):
        assert effect.mean == pytest.approx(mean)
    harm = model_edits.damage(scores, "rows", "dense", "all")
    assert harm.mean == pytest.approx((1 + 2 + 1) / (10 + 10 + 20))


def test_a_conversion_is_what_it_costs_and_what_training_gives_back(catalog, tmp_path):
    text = {"sequence": [0, 1], "source": "plays", "tokens": [10, 30]}

    def losses(nats, *names):
        return pd.concat(
            pd.DataFrame(text | {"nats": value}).assign(**dict(zip(names, place, strict=True)))
            for place, value in nats.items()
        )

    once = {("none", "dense"): [20, 60], ("third", "rows"): [30, 90], ("third", "one-row"): [60, 140]}
    once |= {("early", "rows"): [50, 90], ("late", "rows"): [30, 70]}
    priors = {("third", "linear", 2.0): [30, 90], ("third", "mean", 2.0): [32, 92]}
    after = {("dense", 0): [20, 60], ("third", 0): [30, 90], ("dense", 8): [18, 58], ("third", 8): [20, 66]}
    write(
        tmp_path / "conversion",
        at_once=losses(once, "placement", "kind"),
        priors=losses(priors, "placement", "prior", "few"),
        trained=losses(after, "arm", "step"),
    )
    scores = Scores("conversion", catalog, "smollm2", tmp_path)
    for effect, mean in (
        (conversion.cost(scores, "third"), (10 + 30) / 40),
        (conversion.loss(scores, "one-row", "rows", "third"), (30 + 50) / 40),
        (conversion.layers(scores, "rows", "rows", "early", "late"), (20 + 20) / 40),
        (conversion.trained(scores, "third", "dense"), (2 + 8) / 40),
        (conversion.given_back(scores, "third", "half"), 100 * (1 - 10 / 40) - 50),
        (conversion.of_prior(scores, "third", "mean", 2.0), 4 / 40),
        (conversion.gain(scores, 8), 4 / 40),
    ):
        assert effect.mean == pytest.approx(mean)
    with pytest.raises(Unmeasured, match="kind 'no-ffn'"):
        conversion.loss(scores, "no-ffn", "rows", "third")
