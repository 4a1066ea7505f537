"""What `dvc metrics show` lists: gaps of seeds that both arms have, as claims have them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.report.metrics import GAP, compared_arms, write_metrics
from tests.conftest import ROOT
from tests.made_up import write_arm

PROSE = {"loss": "prose"}


@pytest.fixture
def scores(tmp_path):
    """Dense has a third seed, much worse, so that a difference of means is not the mean difference."""
    folder = tmp_path / "scores/laptop"
    write_arm(folder, "dense", [4.0, 4.2, 9.0], flops=302_080.0, parameters=135_072)
    write_arm(folder, "stem-full", [3.7, 3.7], flops=273_920.0, parameters=571_552)
    write_arm(folder, "stem-third", [4.1, 4.4, 9.3], diverged=(1,))
    write_arm(folder, "stem-touched", [1.0, 1.0, 1.0])  # of a sweep; no recipe compares it
    return tmp_path / "scores"


def read(folder: Path) -> dict:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_gaps_are_of_the_seeds_that_both_have(catalog, scores, tmp_path):
    assert write_metrics(catalog, "laptop", scores, tmp_path / "metrics") == 3
    metrics = read(tmp_path / "metrics/laptop")
    assert metrics["dense"] == {
        "kFLOPs/token": 302.1,
        "parameters": 135_072,
        "loss (nats/token)": pytest.approx((4.0 + 4.2 + 9.0) / 3, abs=1e-4),
    }
    costs = {"kFLOPs/token": 273.9, "parameters": 571_552}
    assert metrics["stem-full"] == costs | {"gap (nats/token)": 0.4, "loss (nats/token)": 3.7}
    assert metrics["stem-third"].keys() == {"kFLOPs/token", "parameters"}  # a run of it diverged


def test_arms_of_two_plans_have_no_gap(catalog, scores, tmp_path):
    write_arm(scores / "laptop", "stem-full", [3.7, 3.7], data_hash="of another text")
    write_metrics(catalog, "laptop", scores, tmp_path / "metrics")
    assert read(tmp_path / "metrics/laptop")["stem-full"].keys() == {"kFLOPs/token", "parameters", "loss (nats/token)"}


def test_an_arm_that_no_recipe_compares_any_more_is_listed_no_more(catalog, scores, tmp_path):
    (tmp_path / "metrics/laptop").mkdir(parents=True)
    (tmp_path / "metrics/laptop/gone.json").write_text("{}")
    write_metrics(catalog, "laptop", scores, tmp_path / "metrics")
    assert read(tmp_path / "metrics/laptop").keys() == {"dense", "stem-full", "stem-third"}


def test_without_dense_there_is_nothing_to_compare_with(catalog, scores, tmp_path):
    path = scores / "laptop/protocol.parquet"
    protocol = pd.read_parquet(path)
    protocol[protocol["arm"] != "dense"].to_parquet(path)
    with pytest.raises(UserError, match="no losses of dense, which the other arms are compared with"):
        write_metrics(catalog, "laptop", scores, tmp_path / "metrics")


def gaps(catalog):
    """Yield scale, name and arms of every committed claim and estimate of prose losses at the scale, and its number."""
    for path in sorted(ROOT.glob("results/*/*/verdicts.json")):
        scale, name = path.parent.parts[-2:]
        recipe = catalog.recipes[name]
        if recipe.compare_at != "main" or recipe.measure == "mid_training":  # whose losses are of its second stage
            continue
        for row in json.loads(path.read_text()):
            if recipe.claims[row["claim"]].metric == PROSE and "own" not in row["method"]:
                yield scale, f"{name}/{row['claim']}", row["arms"], row["ours"]
        data = pd.read_csv(path.with_name("data.csv"))
        for row in data[data["panel"] == "estimates"].itertuples():
            estimate = recipe.estimates[row.what]
            if estimate.metric == PROSE:
                yield scale, f"{name}/{row.what}", list(estimate.arms), row.value


def test_they_agree_with_the_claims_and_estimates(catalog):
    checked = set()
    for scale, name, arms, ours in gaps(catalog):
        if "dense" not in arms:
            continue
        (other,), folder = set(arms) - {"dense"}, ROOT / "metrics" / scale
        sign = 1 if arms[0] == "dense" else -1
        assert sign * json.loads((folder / f"{other}.json").read_text())[GAP] == pytest.approx(ours, abs=6e-5)
        checked.add(f"{scale}/{name}")
    assert "laptop/validation_loss/full-below-dense" in checked
    assert len(checked) > 9


@pytest.mark.parametrize(
    "scale", sorted(path.name for path in ROOT.glob("metrics/*") if path.is_dir() and "smoke" not in path.name)
)
def test_the_committed_ones_follow_from_the_scores(catalog, scale, tmp_path):
    """Else `stemrepro metrics --scale ...` writes them anew."""
    write_metrics(catalog, scale, ROOT / "scores", tmp_path)
    assert read(tmp_path / scale) == read(ROOT / "metrics" / scale)
    assert set(read(ROOT / "metrics" / scale)) <= set(compared_arms(catalog.at(scale)))
