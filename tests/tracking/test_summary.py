"""What MLflow shows of arms against the committed scores and verdicts."""

import json

import pytest

from stemrepro.config.address import MAIN, Address
from stemrepro.measures.losses import ArmLosses
from stemrepro.report.metrics import gap
from stemrepro.tracking.mlflow_runs import summary_of
from tests.conftest import ROOT


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
    dense, shaped = (ArmLosses(scores / "losses/main" / arm) for arm in ("dense", address.arm))
    assert gap(shaped, dense) is None  # its width is in the settings that arms share
    found = summary_of(catalog, "width", scores, address)[0]["final/prose_gap"]
    assert found == pytest.approx(dense.loss("prose").mean() - shaped.loss("prose").mean(), abs=1e-6)
