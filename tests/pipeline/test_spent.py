"""What was trained, counted from committed scores: against sums by hand, and against the curves that runs wrote."""

import json

import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.pipeline.plan import make_params
from stemrepro.pipeline.spent import Spent, of_runs, of_trials
from tests.conftest import ROOT

DENSE = 302_080
"""Forward FLOPs of a token in dense, by hand: 6 (2 (2 32^2 + 2 32 16) + 4 128 32 + 6 32 88) + 2 32 1024."""
FULL = DENSE - 5 * 2 * 32 * 88  # five layers lack the up-projection


@pytest.fixture(scope="module")
def planned(catalog):
    return make_params(catalog, "laptop").planned("laptop")


def scored(folder, place, seeds):
    (folder / place).mkdir(parents=True)
    (folder / place / "summary.json").write_text(json.dumps({"seeds": seeds}))


def test_runs_count_once_with_those_that_they_resume_from(planned, tmp_path):
    scored(tmp_path, "losses/main/dense", 4)
    scored(tmp_path, "benchmarks/main/dense", 5)
    scored(tmp_path, "losses/second-half/stem-full", 3)  # resumes from 3 runs at half the tokens
    steps = {"dense": 5 * 819_200, "stem-full": 3 * 409_600 + 3 * 409_600}
    assert of_runs(planned, tmp_path) == Spent(
        11, sum(steps.values()), 3 * (steps["dense"] * DENSE + steps["stem-full"] * FULL)
    )


def test_a_curve_says_how_long_its_runs_were(planned, tmp_path):
    """In another vocabulary a run takes as many tokens as the same text has, which the plan doesn't know."""
    scored(tmp_path, "losses/main/dense", 2)
    rows = "seed,tokens,flops\n0,10,100\n0,20,200\n1,10,100\n1,20,200\n"
    (tmp_path / "losses/main/dense/curve.csv").write_text(rows)
    assert of_runs(planned, tmp_path) == Spent(2, 40, 400.0)


@pytest.mark.parametrize("scale", ["needle", "recall"])
def test_committed_scores_give_what_their_curves_do(catalog, scale):
    ends = [pd.read_csv(path).groupby("seed").max() for path in (ROOT / f"scores/{scale}/losses").glob("*/*/curve.csv")]
    sums = pd.concat(ends)
    found = of_runs(make_params(catalog, scale).planned(scale), ROOT / "scores" / scale)
    assert found.runs == len(sums) > 20
    assert found.flops == pytest.approx(sums["flops"].sum(), rel=1e-9)


def test_trials_are_those_of_the_sweeps_lists(catalog, tmp_path):
    folder = tmp_path / "results/laptop/sweeps/start"
    folder.mkdir(parents=True)
    (folder / "data.csv").write_text("arm,learning_rate,state\ndense,0.1,complete\ndense,0.2,fail\nstem-full,0.1,x\n")
    found = of_trials(catalog, tmp_path / "results", ROOT / "recipes/sweeps")
    assert found == Spent(3, 3 * 819_200, 3.0 * 819_200 * (2 * DENSE + FULL))


@pytest.mark.parametrize("text", ["{}", "[]", '{"seeds": "two"}', "{"])
def test_a_damaged_summary_is_named(planned, tmp_path, text):
    scored(tmp_path, "losses/main/dense", 1)
    (tmp_path / "losses/main/dense/summary.json").write_text(text)
    with pytest.raises(UserError, match=r"losses/main/dense/summary\.json"):
        of_runs(planned, tmp_path)


def test_damaged_lists_are_named(planned, catalog, tmp_path):
    scored(tmp_path, "losses/main/dense", 1)
    (tmp_path / "losses/main/dense/curve.csv").write_text("seed\n1\n")
    with pytest.raises(UserError, match=r"curve\.csv"):
        of_runs(planned, tmp_path)
    (tmp_path / "laptop/sweeps/start").mkdir(parents=True)
    (tmp_path / "laptop/sweeps/start/data.csv").write_text("seed\n1\n")
    with pytest.raises(UserError, match=r"start/data\.csv"):
        of_trials(catalog, tmp_path, ROOT / "recipes/sweeps")
