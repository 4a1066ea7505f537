"""Predictions of the next rung, on losses that follow a law."""

import pandas as pd
import pytest

from benchmarks.predict_rung import added, came, lines
from stemrepro.common.errors import UserError
from stemrepro.measures.comparison import ComparedArm
from stemrepro.measures.losses import ArmLosses
from stemrepro.measures.scaling import Scaling
from tests.made_up import made, write_arm


@pytest.fixture
def measure(catalog, tmp_path):
    """Dense and STEM full with three rungs; the fourth and the scale itself aren't there yet."""
    scaling = made(Scaling, catalog, "token_ladder", {})
    for arm, shift in (("dense", 0.0), ("stem-full", -0.1)):
        variants = {
            variant: write_arm(
                tmp_path / variant / arm, [2 + shift + (tokens / 1e5) ** -0.3 + 0.01 * seed for seed in range(3)]
            )
            for variant, tokens in scaling.rungs().items()
            if variant and variant != "rung-4"
        }
        variants["rung-4"] = ArmLosses(tmp_path / "rung-4" / arm)
        scaling.arms[arm] = ComparedArm(ArmLosses(tmp_path / "main" / arm), variants=variants)
    return scaling


def test_losses_and_gaps_are_foretold(measure):
    predictions = {line["what"]: line for line in lines(measure, "rung-4")}
    assert list(predictions) == ["dense", "stem-full", "dense - stem-full"]
    assert predictions["dense - stem-full"]["value"] == pytest.approx(0.1, abs=1e-3)
    expected = 2.01 + (measure.tokens_at("rung-4") / 1e5) ** -0.3
    assert predictions["dense"]["value"] == pytest.approx(expected, abs=1e-3)
    assert predictions["dense"]["ci_low"] < expected < predictions["dense"]["ci_high"]
    assert predictions["dense"]["fitted"] == "rung-1 rung-2 rung-3"


def test_some_arms_are_foretold_by_themselves_and_the_others_later(measure, tmp_path):
    some, file = lines(measure, "rung-4", ["dense"]), tmp_path / "predicted.csv"
    assert [line["what"] for line in some] == ["dense"]
    added(file, some).to_csv(file, index=False)
    later = lines(measure, "rung-4", ["stem-full"])
    assert [line["what"] for line in later] == ["stem-full", "dense - stem-full"]
    assert list(added(file, later)["what"]) == ["dense", "stem-full", "dense - stem-full"]
    with pytest.raises(UserError, match="'stem-fuld' is unknown; did you mean 'stem-full'"):
        lines(measure, "rung-4", ["stem-fuld"])


def test_what_has_been_run_or_foretold_is_refused(measure, tmp_path):
    with pytest.raises(UserError, match=r"rung-3/dense/summary\.json exists"):
        lines(measure, "rung-3")
    file, new = tmp_path / "predicted.csv", lines(measure, "rung-4")
    added(file, new).to_csv(file, index=False)
    with pytest.raises(UserError, match="has a prediction of 'rung-4' already"):
        added(file, new)
    later = [line | {"rung": "main"} for line in new]
    assert list(added(file, later)["rung"]) == ["rung-4"] * 3 + ["main"] * 3


def test_an_unknown_rung_is_named(measure):
    with pytest.raises(UserError, match="rung 'rung-44' is unknown; did you mean 'rung-4'"):
        lines(measure, "rung-44")


def test_what_came_is_the_mean_of_all_seeds_and_inside_or_not(measure):
    predicted = pd.DataFrame(lines(measure, "rung-4")).assign(rung="rung-3")  # which has scores
    dense, full, gap = came(measure, predicted)["came"]
    assert dense == pytest.approx(2.01 + (measure.tokens_at("rung-3") / 1e5) ** -0.3)
    assert gap == pytest.approx(dense - full)
    assert gap == pytest.approx(0.1)
    assert came(measure, predicted)["inside"].tolist() == [False, False, True]
    assert came(measure, predicted.assign(scale="another")).empty
    with pytest.raises(UserError, match=r"rung-4/dense/summary\.json is missing"):
        came(measure, predicted.assign(rung="rung-4"))


def test_a_rung_needs_the_scores_of_all_those_below(measure):
    with pytest.raises(UserError, match=r"rung-4/dense/summary\.json is missing"):
        lines(measure, "main")
