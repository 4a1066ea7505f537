"""What MLflow shows of arms against the committed scores and verdicts."""

import json

import pytest

from stemrepro.config.address import MAIN, Address
from stemrepro.report.verdicts import read_verdicts
from stemrepro.tracking.arm import GAP, REFERENCE, arm_view, claims_on, describe, gap, losses_of, recipes_of, spoken
from stemrepro.tracking.run import cost_of
from tests.conftest import ROOT

SCALES = [scale for scale in ("laptop", "ladder") if (ROOT / "scores" / scale / "losses").is_dir()]


def judged_gaps(scale, catalog):
    """Of each claim on the prose of two arms, one of which is dense: its address, and how far dense is above the other."""
    for name, recipe in catalog.at(scale).recipes.items():
        path = ROOT / "results" / scale / name / "verdicts.json"
        for row in read_verdicts(path) if path.exists() else []:
            if row["metric"] == "prose" and len(row["arms"]) == 2 and REFERENCE in row["arms"]:
                (arm,) = set(row["arms"]) - {REFERENCE}
                sign = 1 if row["arms"][0] == REFERENCE else -1
                yield f"{name}/{row['claim']}", Address(recipe.base, arm), sign * row["ours"], row["seeds"]


@pytest.mark.parametrize("scale", SCALES)
def test_gaps_are_those_of_the_verdicts(scale, catalog):
    """Not the difference of two means, one of which is over more seeds."""
    found = list(judged_gaps(scale, catalog))
    assert len(found) >= 3
    for claim, address, ours, seeds in found:
        own = gap(ROOT / "scores" / scale, address)
        assert (claim, len(own.differences)) == (claim, seeds)
        assert own.mean == pytest.approx(ours, abs=1e-6), claim


def view_of(catalog, scale, address):
    scores = ROOT / "scores" / scale
    settings = losses_of(scores, address).summary["params_hash"]
    return arm_view(catalog, scores, ROOT / "results" / scale, address, settings, [])


def test_an_arm_of_the_laptop(catalog):
    address = Address(MAIN, "stem-full")
    view = view_of(catalog, "laptop", address)
    about = json.loads((ROOT / "scores/laptop/losses/main/stem-full/summary.json").read_text())
    metrics = view.metrics()
    assert metrics["final/prose_loss"] == pytest.approx(about["loss"]["prose"]["nats_per_token"], abs=1e-6)
    assert metrics[GAP] == round(view.gap.mean, 6)
    assert metrics["cost/flops_per_token"] == about["forward_flops_per_token"]
    assert metrics["cost/parameters"] == about["parameters"]["total"]
    assert metrics["cost/tables_parameters"] == about["parameters"]["tables"]
    assert (len(view.seeds), view.trained) == (about["seeds"], "")


def test_words_of_an_arm(catalog):
    address, results = Address(MAIN, "stem-full"), ROOT / "results" / "laptop"
    view, claims = view_of(catalog, "laptop", address), claims_on(address, spoken(catalog, results))
    text = describe(catalog, "laptop", view, claims)
    (row,) = [
        row
        for row in read_verdicts(results / "validation_loss" / "verdicts.json")
        if row["claim"] == "full-below-dense"
    ]
    level, low, high = f"{100 * row['level']:.4g}%", f"{row['ci_low']:+.4f}", f"{row['ci_high']:+.4f}"
    assert (
        f"`validation_loss/full-below-dense`: {row['verdict']}, {row['ours']:+.4f} nats/token ({level} interval {low} to {high})"
        in text
    )
    assert f"{row['ours']:.4f} nats a token below dense" in text
    assert "STEM full" in text
    assert "stemrepro/model/ffn/stem.py" in text
    assert (ROOT / "stemrepro/model/ffn/stem.py").exists()
    assert len(text) < 8000  # MLflow cuts what is longer
    commit = json.loads((results / "validation_loss" / "provenance.json").read_text())["commit"][:7]
    assert commit in text
    assert {claim.recipe for claim in claims} <= set(recipes_of(catalog, address))


def test_the_side_of_dense_on_which_an_arm_ends(catalog):
    """Shuffled rows end above it."""
    address = Address(MAIN, "stem-shuffled")
    view = view_of(catalog, "laptop", address)
    assert view.gap.mean < 0
    assert f"{-view.gap.mean:.4f} nats a token above dense" in describe(catalog, "laptop", view, [])
    assert "gap of other arms" in describe(catalog, "laptop", view_of(catalog, "laptop", Address(MAIN, REFERENCE)), [])


def test_no_words_are_too_long_for_mlflow(catalog):
    claims = spoken(catalog, ROOT / "results" / "laptop")
    for path in (ROOT / "scores/laptop/losses").glob("*/*/losses.csv"):
        address = Address(path.parts[-3], path.parts[-2])
        assert len(describe(catalog, "laptop", view_of(catalog, "laptop", address), claims_on(address, claims))) < 8000


def test_claims_at_another_variant_are_not_those_of_the_scale(catalog):
    claims = spoken(catalog, ROOT / "results" / "laptop")
    names = {f"{c.recipe}/{c.row['claim']}": c.variant for c in claims}
    assert names["validation_loss/full-below-dense"] == MAIN
    assert names["table_design/random-rows"] == catalog.recipes["table_design"].base != MAIN
    assert "table_design" not in {claim.recipe for claim in claims_on(Address(MAIN, "stem-frozen"), claims)}


def test_costs_of_settings_are_those_that_scores_have(make_run):
    """Of a run that has no scores yet, counted on the module."""
    run = make_run("stem-third", 0)
    from stemrepro.model.transformer import Decoder

    cost = cost_of(run.config)
    assert cost["parameters"]["total"] == sum(weights.numel() for weights in Decoder(run.model).parameters())
    assert cost["forward_flops_per_token"] > 0
