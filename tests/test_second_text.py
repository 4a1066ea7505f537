"""The leads on code, computed once more from the committed losses, and its study of the rate."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.report.analyse import analyse
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """data.csv and verdicts of the committed scores."""
    out = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        verdicts = analyse("second_text", "code", ROOT / "scores", out)
    assert (out / "code/second_text/figure.svg").exists()
    return pd.read_csv(out / "code/second_text/data.csv"), {row["claim"]: row["ours"] for row in verdicts}


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["stem-third", "stem-full"])
def test_the_leads_on_code_are_those_of_the_losses(drawn, arm):
    losses = pd.read_parquet(ROOT / "scores/code/losses.parquet").query("by == 'pair'")
    assert set(losses["source"]) == {"code"}
    sums = losses.groupby(["arm", "seed"], observed=True)[["nats", "tokens", "bytes"]].sum()
    dense, stem = (sums.loc[name] for name in ("dense", arm))
    assert (dense[["tokens", "bytes"]] == stem[["tokens", "bytes"]]).all(axis=None)
    rows = drawn[0].query("what == @arm").set_index("panel")["value"]
    below = (dense["nats"] - stem["nats"]) / dense["tokens"]
    assert rows["below"] == pytest.approx(below.mean(), abs=1e-5)
    assert drawn[1][f"code-{arm.removeprefix('stem-')}"] == pytest.approx(below.mean(), abs=1e-5)
    assert rows["lead"] == pytest.approx(100 * np.mean(1 - stem["nats"] / dense["nats"]), abs=1e-4)


def test_another_rate_changes_the_lead_on_code_by_less_than_its_interval():
    trials = pd.read_csv(ROOT / "results/code/sweeps/code_rate/data.csv")
    least = trials.groupby("arm")["prose"].min()
    (rate,) = trials.set_index("arm").loc["stem-full"].query("prose == prose.min()")["learning_rate"]
    same = trials[trials["learning_rate"] == rate].set_index("arm")["prose"]
    assert rate == 0.016  # the scale's
    leads = [100 * (1 - loss["stem-full"] / loss["dense"]) for loss in (same, least)]
    assert leads[0] - leads[1] == pytest.approx(0.04, abs=0.01)
