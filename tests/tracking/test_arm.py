"""What MLflow shows of arms against the committed scores and verdicts."""

import json

import pandas as pd
import pytest

from stemrepro.config.address import MAIN, Address
from stemrepro.report.verdicts import read_verdicts
from stemrepro.tracking.arm import GAP, REFERENCE, arm_metrics, final_scores, gap, losses_of
from tests.conftest import ROOT

SCALES = [scale for scale in ("laptop", "ladder") if (ROOT / "scores" / scale / "losses").is_dir()]


def published_gaps(scale, catalog):
    """Of each claim or estimate on the prose of dense and another arm: the address, and how far dense is above it."""
    for name, recipe in catalog.at(scale).recipes.items():
        folder = ROOT / "results" / scale / name
        numbers = (
            {row["claim"]: row["ours"] for row in read_verdicts(folder / "verdicts.json")} if recipe.claims else {}
        )
        data = pd.read_csv(folder / "data.csv")
        numbers |= data[data["panel"] == "estimates"].set_index("what")["value"].to_dict()
        for key, asked in (recipe.claims | recipe.estimates).items():
            if asked.metric == "prose" and len(asked.arms) == 2 and REFERENCE in asked.arms:
                (arm,) = set(asked.arms) - {REFERENCE}
                sign = 1 if asked.arms[0] == REFERENCE else -1
                yield f"{name}/{key}", Address(recipe.base, arm), sign * numbers[key]


@pytest.mark.parametrize("scale", SCALES)
def test_gaps_are_those_that_recipes_publish(scale, catalog):
    """Not the difference of two means, one of which is over more seeds."""
    published = list(published_gaps(scale, catalog))
    assert len(published) >= 3
    for name, address, ours in published:
        assert gap(ROOT / "scores" / scale, address) == pytest.approx(ours, abs=1e-6), name


def test_an_arm_of_the_laptop(catalog):
    address, scores = Address(MAIN, "stem-full"), ROOT / "scores" / "laptop"
    arm = losses_of(scores, address)
    values = final_scores(catalog, scores, address, arm.summary["params_hash"])
    assert list(values["final/prose_loss"]) == arm.scored
    metrics = arm_metrics(scores, address, values)
    about = json.loads((scores / "losses/main/stem-full/summary.json").read_text())
    assert metrics["final/prose_loss"] == pytest.approx(about["loss"]["prose"]["nats_per_token"], abs=1e-6)
    assert metrics[GAP] == round(gap(scores, address), 6) > 0
    assert metrics["cost/flops_per_token"] == about["forward_flops_per_token"]
    assert metrics["cost/parameters"] == about["parameters"]["total"]
    assert metrics["cost/tables_parameters"] == about["parameters"]["tables"]
    assert arm_metrics(scores, address, final_scores(catalog, scores, address, "other settings")) == {}


def test_an_arm_of_another_shape_has_a_gap_too():
    address, scores = Address(MAIN, "dense-equal-size"), ROOT / "scores" / "width"
    assert gap(scores, address) is None  # its width is in the settings that arms share
    means = [losses_of(scores, Address(MAIN, arm)).loss("prose").mean() for arm in ("dense", "dense-equal-size")]
    assert gap(scores, address, shaped=True) == pytest.approx(means[0] - means[1], abs=1e-6)
