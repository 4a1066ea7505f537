"""What MLflow shows of arms against the committed scores and verdicts."""

import json

import pandas as pd
import pytest

from stemrepro.config.address import MAIN, Address
from stemrepro.measures.losses import ArmLosses
from stemrepro.report.verdicts import read_verdicts
from stemrepro.tracking.arm import REFERENCE, gap, summary_of
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


def test_the_summary_of_an_arm_of_the_laptop(catalog):
    scores = ROOT / "scores" / "laptop"
    metrics, tags = summary_of(catalog, "laptop", scores, Address(MAIN, "stem-full"))
    about = json.loads((scores / "losses/main/stem-full/summary.json").read_text())
    assert metrics["final/prose_loss"] == pytest.approx(about["loss"]["prose"]["nats_per_token"], abs=1e-6)
    assert metrics["final/prose_gap"] > 0
    assert metrics["model/flops_per_token"] == about["forward_flops_per_token"]
    assert metrics["model/tables_parameters"] == about["parameters"]["tables"]
    assert tags["variant"] == "main"


def test_an_arm_of_another_shape_has_a_gap_too(catalog):
    address, scores = Address(MAIN, "dense-equal-size"), ROOT / "scores" / "width"
    assert gap(scores, address) is None  # its width is in the settings that arms share
    means = [ArmLosses(scores / "losses/main" / arm).loss("prose").mean() for arm in ("dense", "dense-equal-size")]
    found = summary_of(catalog, "width", scores, address)[0]["final/prose_gap"]
    assert found == pytest.approx(means[0] - means[1], abs=1e-6)
