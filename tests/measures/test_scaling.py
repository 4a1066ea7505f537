import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures import scaling
from stemrepro.measures.losses import arm_losses
from stemrepro.measures.scaling import rungs, token_multiplier, tokens, width
from stemrepro.report.evidence import evidence_for
from stemrepro.verdicts.effect import Unmeasured
from stemrepro.verdicts.rule import NOT_TESTED, steps
from tests.made_up import made, write_arms

FLOOR, AMPLITUDE, EXPONENT, OF_SIZE = 1.5, 1.2, 0.4, 0.5
NARROW, WIDE = 135_000, 408_000
LADDER = "token_ladder"


def law(tokens, parameters=NARROW):
    """Dense's loss; parameters and tokens have one exponent."""
    return FLOOR + OF_SIZE * (parameters / NARROW) ** -EXPONENT + AMPLITUDE * (tokens / 1e5) ** -EXPONENT


@pytest.fixture
def build(catalog, tmp_path):
    """Scores of arms, each a function of tokens and parameters, with 5 seeds at the first rung and 3 elsewhere."""

    def build(arms, without=(), **more):
        scores, prose = made(catalog, LADDER, tmp_path, tuple(arms)), {}
        for name, loss in arms.items():
            for of_width, size in ((1.0, NARROW), (2.0, WIDE)):
                for rung, count in rungs(scores, of_width).items():
                    losses = [loss(count, size) + 0.01 * seed for seed in range(5 if rung == "rung-1" else 3)]
                    if rung not in without:
                        prose[f"{name}@{rung}"] = {"prose": losses, "parameters": size} | more.get(name, {})
        write_arms(tmp_path, prose)
        return scores

    return build


def test_rungs_of_a_width_are_in_order_with_the_scale_last(catalog, tmp_path):
    scores = made(catalog, LADDER, tmp_path)
    assert list(rungs(scores)) == ["rung-1", "rung-2", "rung-3", "rung-4", "main"]
    assert list(rungs(scores, 2.0)) == ["wide-rung-1", "wide-rung-2", "wide-rung-3"]
    assert scaling.widths(scores) == [1.0, 2.0]


@pytest.mark.parametrize("times", [1.0, 2.0, 3.7])
def test_tokens_flops_and_time_that_dense_needs(build, times):
    """An arm that is dense with more tokens is worth just these, at every rung; costs come on top."""
    scores = build(
        {"dense": law, "stem-full": lambda t, n: law(times * t, n)},
        dense={"flops": 10.0}, **{"stem-full": {"flops": 8.0}},
    )  # fmt: skip

    def multiple(metric, high="dense", low="stem-full", **settings):
        return metric(scores, high, low, **settings).differences

    for settings in ({}, {"at": "rung-2"}, {"at": "rung-4"}):
        assert multiple(token_multiplier, **settings) == pytest.approx([np.log2(times)] * 3, abs=5e-3)
    scores.scale.step_times["stem-full"] = 1.25
    assert multiple(scaling.time_multiplier).mean() == pytest.approx(np.log2(times / 1.25), abs=5e-3)
    del scores.scale.step_times["stem-full"]
    with pytest.raises(Unmeasured, match="scale 'laptop': no step time of stem-full"):
        multiple(scaling.time_multiplier)
    assert multiple(scaling.flop_multiplier).mean() == pytest.approx(np.log2(times * 10 / 8), abs=5e-3)
    assert multiple(token_multiplier, "stem-full", "dense").mean() == pytest.approx(-np.log2(times), abs=5e-3)


def test_a_loss_below_the_floor_is_out_of_reach_and_one_far_beyond_the_ladder_is_unmeasured(build):
    scores = build({
        "dense": law,
        "stem-full": lambda t, n: law(t, n) - 1.0,
        "stem-third": lambda t, n: law(t * 300, n),
    })  # fmt: skip
    with pytest.raises(Unmeasured, match=r"dense never reaches stem-full's loss at the last rung: in 3 of 3 seeds"):
        token_multiplier(scores, "dense", "stem-full")
    with pytest.raises(Unmeasured, match=r"at rung-4 only with 150 times the most tokens of its ladder, which spans"):
        token_multiplier(scores, "dense", "stem-third", "rung-4")
    assert token_multiplier(scores, "dense", "stem-third", "rung-1").mean == pytest.approx(np.log2(300), abs=0.02)
    with pytest.raises(UserError, match=r"'wide-rung-1' is no rung at the scale's width; its rungs are rung-1, rung-2"):
        token_multiplier(scores, "dense", "stem-third", "wide-rung-1")
    with pytest.raises(UserError, match=r"rung 'rung-1-official-start' is unknown"):
        token_multiplier(scores, "dense", "stem-third", "rung-1-official-start")


def test_a_wider_dense_model_is_compared_with_an_arm_at_equal_tokens(build):
    """The arm's loss falls by 0.1 per doubling of the tokens, so that a straight line between its rungs is exact."""

    def line(tokens, parameters):
        return 5 - 0.1 * np.log2(tokens / 1e5)

    scores = build({"dense": lambda tokens, parameters: 4.0, "stem-full": line})
    for rung, count in rungs(scores, 2.0).items():
        result = scaling.wider_dense(scores, "stem-full", rung).differences
        assert result == pytest.approx([line(count, None) - 4.0] * 3)


def test_dense_lies_on_its_own_law_and_an_arm_is_compared_at_equal_flops(build):
    scores = build({"dense": law, "stem-full": law}, **{"stem-full": {"flops": 5.0}})
    spent = scores.scale.training.tokens
    assert scaling.over_law(scores, "dense", "main").mean == pytest.approx(0, abs=1e-4)
    assert scaling.over_law(scores, "stem-full", "main").mean == pytest.approx(law(spent) - law(spent / 2), abs=1e-4)


@pytest.mark.parametrize(("gain", "testable"), [(-0.1, True), (0.01, True), (0.05, False)])
def test_claims_about_tables_need_frozen_rows_that_gain_nothing(build, catalog, gain, testable):
    scores = build({
        "dense": law, "stem-third": lambda t, n: law(t, n) - 0.1, "stem-frozen": lambda t, n: law(t, n) - gain,
    })  # fmt: skip
    claims = catalog.recipes[LADDER].claims
    claim = claims["third-below-dense-at-the-papers-ratio"]
    verdict = steps(evidence_for(claim, scores))[-1].verdict
    assert (verdict != NOT_TESTED) == testable
    conditioned = {name for name, claim in claims.items() if "no_gain_without_information" in claim.requires}
    assert conditioned == {
        name for name, claim in claims.items() if claim.metric == {"loss": "prose"} and name != "frozen-rows"
    }


def test_early_and_late_slopes_meet_at_the_third_rung(build, catalog, tmp_path):
    """The gap grows by 0.03 a doubling up to the third rung, and falls by 0.01 from there on."""
    third = np.log2(list(rungs(made(catalog, LADDER, tmp_path)).values())[2])

    def bent(tokens, width=1.0):
        past = np.log2(tokens) - third
        return law(tokens, width) - 0.03 * min(past, 0) + 0.01 * max(past, 0)

    scores = build({"dense": law, "stem-full": bent})
    assert tokens(scores, "dense", "stem-full", "early").differences == pytest.approx([0.03] * 3, abs=1e-6)
    assert tokens(scores, "dense", "stem-full", "late").differences == pytest.approx([-0.01] * 3, abs=1e-6)


def test_a_gap_at_another_width_is_compared_after_as_many_tokens_per_parameter(build, catalog, tmp_path):
    """Gaps that depend on the width and on the tokens, so that any other rung would give another number."""
    dense = {NARROW: 3.0, WIDE: 2.7}
    scores = build({
        "dense": lambda t, n: dense[n],
        "stem-full": lambda t, n: dense[n] - (0.3 if n == NARROW else 0.1) - 0.01 * np.log2(t / n),
    })  # fmt: skip
    for wide in ("wide-rung-2", "wide-rung-3"):
        assert width(scores, "dense", "stem-full", wide).differences == pytest.approx([0.2] * 3, abs=1e-3)
    assert width(scores, "stem-full", "dense", "wide-rung-2").mean == pytest.approx(-0.2, abs=1e-3)
    at = scaling.tokens_a_parameter(scores, 2.0)["wide-rung-2"]
    points = 100 * ((0.3 + 0.01 * np.log2(at)) / 3.0 - (0.1 + 0.01 * np.log2(at)) / 2.7)
    assert scaling.lost(scores, "dense", "stem-full", "wide-rung-2").mean == pytest.approx(points, abs=0.05)
    variants = {name: asked for name, asked in scores.recipe.variants.items() if name != "rung-3"}
    recipe = scores.recipe.model_copy(update={"variants": variants})
    fewer = made(catalog.model_copy(update={"recipes": {LADDER: recipe}}), LADDER, tmp_path)
    with pytest.raises(
        UserError, match=r"'wide-rung-3' has 0.76.? tokens per parameter; the nearest rung of the scale's width has"
    ):
        width(fewer, "dense", "stem-full", "wide-rung-3")


def test_a_ladder_is_of_the_seeds_that_all_rungs_have(build):
    scores = build({"dense": law})
    assert len(arm_losses(scores, "dense", "rung-1").seeds) == 5
    assert scaling.rung_losses(scores, "dense", "rung-1").seeds == [0, 1, 2]
