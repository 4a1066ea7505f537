"""What MLflow shows of arms against the committed scores and verdicts."""

import pytest

from stemrepro.config.address import MAIN, Address
from stemrepro.measures.losses import ArmLosses
from stemrepro.report.metrics import gap
from stemrepro.tracking.mlflow_runs import summary_of
from tests.conftest import ROOT


def test_an_arm_of_another_shape_has_a_gap_too(catalog):
    address, scores = Address(MAIN, "dense-equal-size"), ROOT / "scores" / "width"
    dense, shaped = (ArmLosses(scores, Address(MAIN, arm)) for arm in ("dense", address.arm))
    assert gap(shaped, dense) is None  # its width is in the settings that arms share
    shaped = shaped.first(len(dense.seeds))  # it has more seeds, and a gap is of those that both have
    found = summary_of(catalog, "width", scores, address)[0]["final/prose_gap"]
    assert found == pytest.approx(dense.loss("prose").mean() - shaped.loss("prose").mean(), abs=1e-6)
