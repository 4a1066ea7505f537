"""The ladder's figure and verdicts, on made-up losses that follow given laws."""

import json

import numpy as np
import pandas as pd
import pytest

from stemrepro.config.address import MAIN
from stemrepro.config.sources import prose
from stemrepro.measures.catalog import load
from stemrepro.report.analyse import analyse
from stemrepro.report.results import pick
from tests.conftest import ROOT
from tests.made_up import write_arms

FLOOR, AMPLITUDE, EXPONENT, UNIT = 2.0, 1.2, 0.4, 4e6
GAIN = {
    "dense": 0.0,
    "stem-third": 0.05,
    "stem-full": 0.09,
    "token-only": -0.06,
    "up-removed": -0.08,
    "stem-frozen": -0.07,
    "stem-dagger-full": 0.095,
    "value-embeddings": 0.04,
    "bigram-input": 0.9,
    "input-add": 0.03,
    "ngram-table": 0.12,
}
FLOPS = {"stem-third": 9.5, "stem-full": 8.7, "up-removed": 8.7, "token-only": 7.4}
PARAMETERS = {1: 135_072, 2: 408_384}


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """scores/ladder of every arm and rung.

    Dense follows a law; the others lie below by a gain that shrinks by a twentieth per doubling.
    """
    folder, catalog, rng = tmp_path_factory.mktemp("ladder"), load(ROOT / "recipes"), np.random.default_rng(0)
    scale, recipe, arms = catalog.scale("ladder"), catalog.recipe("token_ladder"), {}
    luck = {seed: rng.normal(0, 0.006) for seed in range(5)}
    for address, parts in recipe.wanted().items():
        variant = catalog.variant(address.variant)
        tokens, count = variant.at(scale).training.tokens, max(parts.values())
        gain = GAIN[address.arm] * (1 - 0.05 * np.log2(tokens / 331_776))
        law = FLOOR - 0.2 * (variant.width > 1) + AMPLITUDE * (tokens / UNIT) ** -EXPONENT
        prose = {seed: law - gain + luck[seed] + rng.normal(0, 0.003) for seed in range(count)}
        more = {
            "steps": round(tokens / 1e5),
            "flops": FLOPS.get(address.arm, 10.0) * variant.width**2,
            "parameters": PARAMETERS[variant.width],
        }
        pairs = {"0": 0.3 + gain / 2, "1-3": 0.1, "4-31": -0.1, "32+": -0.3 - gain / 2}
        arms[str(address)] = {"prose": prose, "pairs": pairs} | more
    write_arms(folder / "scores/ladder", arms)
    return folder


def late_slope(scores):
    """By hand: the slope of dense less STEM full over the last three rungs, in the mean over three seeds."""
    catalog, points, lines = load(ROOT / "recipes"), {}, pd.read_parquet(scores / "losses.parquet")
    for rung in ("rung-3", "rung-4", MAIN):
        tables = [lines[(lines["variant"] == rung) & (lines["arm"] == arm)] for arm in ("dense", "stem-full")]
        rows = [
            table[(table["by"] == "pair") & table["source"].isin(prose(table["source"].unique()))] for table in tables
        ]
        sums = [row.groupby(["seed", "source"])[["nats", "tokens"]].sum() for row in rows]
        dense, stem = ((total["nats"] / total["tokens"]).groupby("seed").mean() for total in sums)
        points[catalog.variant(rung).at(catalog.scale("ladder")).training.tokens] = (dense - stem)[[0, 1, 2]].mean()
    return np.polyfit(np.log2(list(points)), list(points.values()), 1)[0]


@pytest.mark.slow
def test_the_ladder_is_judged_and_drawn(made_up, few_draws, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = {row["claim"]: row for row in analyse("token_ladder", "ladder", made_up / "scores", made_up / "results")}
    folder = made_up / "results/ladder/token_ladder"
    assert rows["full-below-dense-at-the-papers-ratio"]["ours"] == pytest.approx(0.09 * 0.657, abs=0.01)
    assert rows["constant-gap-full"]["ours"] == pytest.approx(late_slope(made_up / "scores/ladder"), abs=1e-5)
    assert rows["memory"]["ours"] == pytest.approx(0.03 * 0.657, abs=0.01)
    assert rows["gated-rest"]["ours"] == pytest.approx(0.06 * 0.657, abs=0.01)
    three = {name for name, row in rows.items() if row["seeds"] == 3}
    assert three == {"table-at-equal-flops", "constant-gap-third", "constant-gap-full", "frozen-rows"}
    assert {row["seeds"] for name, row in rows.items() if name not in three} == {5}
    pictures = [folder / f"{name}.svg" for name in ("figure", "front")]
    assert all(path.stat().st_size > 10_000 for path in pictures)
    assert json.loads((folder / "verdicts.json").read_text()) == list(rows.values())
    data = pd.read_csv(folder / "data.csv")
    drawn = data[data["panel"].isin(["gap, %", "part", "over dense's law", "by pair", "gap to dense"])]
    assert drawn[["value", "ci_low", "ci_high"]].notna().all(axis=None)
    gap = data[data["panel"] == "gap, %"]
    assert gap[gap["x"].astype(float) < 3]["count"].eq(5).all()
    others = data[data["panel"] == "gap, %, re-runs"].set_index("what")["value"]
    assert others.round(1).to_dict() == {"125m": 2.5, "350m": 0.7, "0.6b": 0.4}
    parts = data[data["panel"] == "part"].pivot_table(index="x", columns="what", values="value")
    lead = pick(data, panel="gap to dense", what="stem-full").set_index("x")["value"]
    both = pd.DataFrame(  # what is stacked is one gap, split in two ways
        {"row": parts["memory part"] + parts["gated rest"], "token": parts["token part"] + parts["contextual part"]}
    )
    assert both["row"].to_numpy() == pytest.approx(lead[both.index].to_numpy(), abs=2e-5)
    same = both.index[:-1]  # the longest runs of token-only have three seeds, the others' five
    assert both.loc[same, "token"].to_numpy() == pytest.approx(lead[same].to_numpy(), abs=2e-5)
    token_part = data[(data["panel"] == "part") & (data["what"] == "token part")]
    assert (token_part["value"] < 0).all()


def test_twice_the_longest_runs_rate_raises_the_losses_of_both():
    """As README says of the study at their end."""
    trials = pd.read_csv(ROOT / "results/ladder/sweeps/ladder_rate_286/data.csv")
    losses = trials.pivot_table(index="learning_rate", columns="arm", values="prose")
    assert load(ROOT / "recipes").scale("ladder").learning_rate == 0.004
    assert (losses.loc[0.008] > losses.loc[0.004]).all()
    assert "twice this rate raises the losses of both (one seed)" in (ROOT / "README.md").read_text(encoding="utf-8")
