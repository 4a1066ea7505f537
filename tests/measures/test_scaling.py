import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.comparison import NO_GAIN, ComparedArm
from stemrepro.measures.scaling import Scaling
from stemrepro.report.evidence import evidence_for
from stemrepro.verdicts.contrast import Unmeasured
from stemrepro.verdicts.rule import NOT_TESTED, steps
from tests.made_up import made, write_arm

FLOOR, AMPLITUDE, EXPONENT, OF_SIZE = 1.5, 1.2, 0.4, 0.5
NARROW, WIDE = 135_000, 408_000


def law(tokens, parameters=NARROW):
    """Dense's loss; parameters and tokens have one exponent."""
    return FLOOR + OF_SIZE * (parameters / NARROW) ** -EXPONENT + AMPLITUDE * (tokens / 1e5) ** -EXPONENT


@pytest.fixture
def build(catalog, tmp_path):
    """A measure of arms, each a function of tokens and parameters, with 5 seeds at the first rung and 3 elsewhere."""

    def build(arms, **more):
        measure = made(Scaling, catalog, "token_ladder", {})
        for name, loss in arms.items():
            variants = {}
            for width, size in ((1.0, NARROW), (2.0, WIDE)):
                for variant, tokens in measure.rungs(width).items():
                    prose = [loss(tokens, size) + 0.01 * seed for seed in range(5 if variant == "rung-1" else 3)]
                    about = {"parameters": size} | more.get(name, {})
                    variants[variant] = write_arm(
                        tmp_path / str(variant) / name, prose, tuple(range(len(prose))), **about
                    )
            measure.arms[name] = ComparedArm(variants.pop(None), variants=variants)
        return measure

    return build


def test_rungs_of_a_width_are_in_order_with_the_scale_last(catalog):
    measure = made(Scaling, catalog, "token_ladder", {})
    assert list(measure.rungs()) == ["rung-1", "rung-2", "rung-3", "rung-4", None]
    assert list(measure.rungs(2.0)) == ["wide-rung-1", "wide-rung-2", "wide-rung-3"]
    assert measure.widths() == [1.0, 2.0]


@pytest.mark.parametrize("times", [1.0, 2.0, 3.7])
def test_tokens_parameters_and_flops_that_dense_needs(build, times):
    """An arm that is dense with more tokens (or parameters) is worth just these, at every rung; costs come on top."""
    measure = build(
        {"dense": law, "stem-full": lambda t, n: law(times * t, n), "stem-third": lambda t, n: law(t, times * n)},
        dense={"flops": 10.0}, **{"stem-full": {"flops": 8.0}},
    )  # fmt: skip
    for metric in ("token-multiplier", "token-multiplier@rung-2", "token-multiplier@rung-4"):
        assert measure.contrast("dense", "stem-full", metric).differences == pytest.approx(
            [np.log2(times)] * 3, abs=5e-3
        )
    result = measure.contrast("dense", "stem-third", "parameter-multiplier").differences
    assert result == pytest.approx([np.log2(times)] * 3, abs=5e-3)
    scale = measure.inputs.scale
    scale.step_times["stem-full"] = 1.25
    assert measure.contrast("dense", "stem-full", "time-multiplier").mean == pytest.approx(
        np.log2(times / 1.25), abs=5e-3
    )
    del scale.step_times["stem-full"]
    with pytest.raises(Unmeasured, match="scale 'laptop': no step time of stem-full"):
        measure.contrast("dense", "stem-full", "time-multiplier")
    flops = measure.contrast("dense", "stem-full", "flop-multiplier").mean
    assert flops == pytest.approx(np.log2(times * 10 / 8), abs=5e-3)
    assert measure.contrast("stem-full", "dense", "token-multiplier").mean == pytest.approx(-np.log2(times), abs=5e-3)


def test_a_loss_below_the_floor_is_out_of_reach_and_one_far_beyond_the_ladder_is_unmeasured(build):
    measure = build({
        "dense": law,
        "stem-full": lambda t, n: law(t, n) - 1.0,
        "stem-third": lambda t, n: law(t * 300, n),
    })  # fmt: skip
    with pytest.raises(Unmeasured, match=r"dense never reaches stem-full's loss at the last rung: in 3 of 3 seeds"):
        measure.contrast("dense", "stem-full", "token-multiplier")
    with pytest.raises(Unmeasured, match=r"at rung-4 only with 150 times the most tokens of its ladder, which spans"):
        measure.contrast("dense", "stem-third", "token-multiplier@rung-4")
    assert measure.contrast("dense", "stem-third", "token-multiplier@rung-1").mean == pytest.approx(
        np.log2(300), abs=0.02
    )


def test_a_wider_dense_model_is_compared_with_an_arm_at_equal_tokens(build):
    """The arm's loss falls by 0.1 per doubling of the tokens, so that a straight line between its rungs is exact."""

    def line(tokens, parameters):
        return 5 - 0.1 * np.log2(tokens / 1e5)

    measure = build({"dense": lambda tokens, parameters: 4.0, "stem-full": line})
    for variant, tokens in measure.rungs(2.0).items():
        result = measure.wider_dense("stem-full", variant).differences
        assert result == pytest.approx([line(tokens, None) - 4.0] * 3)


def test_dense_lies_on_its_own_law_and_an_arm_is_compared_at_equal_flops(build):
    measure = build({"dense": law, "stem-full": law}, **{"stem-full": {"flops": 5.0}})
    tokens = measure.inputs.scale.training.tokens
    assert measure.over_law("dense", None).mean == pytest.approx(0, abs=1e-4)
    assert measure.over_law("stem-full", None).mean == pytest.approx(law(tokens) - law(tokens / 2), abs=1e-4)


def test_interaction_by_hand(catalog, tmp_path):
    losses = {"dense": [3.0, 3.1], "up-removed": [3.2, 3.25], "stem-dagger-full": [2.7, 2.8], "stem-full": [2.8, 2.85]}
    arms = {name: write_arm(tmp_path / name, prose, (0, 1)) for name, prose in losses.items()}
    measure = made(Scaling, catalog, "token_ladder", arms)
    result = measure.contrast("dense", "up-removed", "interaction")
    assert result.differences == pytest.approx([-0.2 + 0.1, -0.15 + 0.05])
    assert result.item_se > 0
    assert measure.contrast("up-removed", "dense", "interaction").differences == pytest.approx([0.1, 0.1])
    measure.arms = {
        name: ComparedArm(arm.losses, variants={"rung-1": arm.losses}) for name, arm in measure.arms.items()
    }
    at_rung = measure.contrast("dense", "up-removed", "interaction@rung-1")
    assert at_rung.differences == pytest.approx(result.differences)
    del measure.arms["stem-dagger-full"]
    with pytest.raises(UserError, match="needs the arm 'stem-dagger-full'"):
        measure.contrast("dense", "up-removed", "interaction")
    with pytest.raises(UserError, match=r"pairs without a table, \[dense, up-removed\]"):
        measure.contrast("dense", "stem-full", "interaction")


@pytest.mark.parametrize(("gain", "testable"), [(-0.1, True), (0.01, True), (0.05, False)])
def test_claims_about_tables_need_frozen_rows_that_gain_nothing(build, catalog, gain, testable):
    measure = build({
        "dense": law, "stem-third": lambda t, n: law(t, n) - 0.1, "stem-frozen": lambda t, n: law(t, n) - gain,
    })  # fmt: skip
    claims = catalog.recipes["token_ladder"].claims
    claim = claims["third-below-dense-at-the-papers-ratio"]
    verdict = steps(evidence_for(claim, measure))[-1].verdict
    assert (verdict != NOT_TESTED) == testable
    conditioned = {name for name, claim in claims.items() if NO_GAIN in claim.preconditions}
    assert conditioned == {
        name for name, claim in claims.items() if claim.metric in ("prose", "interaction") and name != "frozen-rows"
    }


def test_early_and_late_slopes_meet_at_the_third_rung(build, catalog):
    """The gap grows by 0.03 a doubling up to the third rung, and falls by 0.01 from there on."""
    third = np.log2(list(made(Scaling, catalog, "token_ladder", {}).rungs().values())[2])

    def bent(tokens, width=1.0):
        past = np.log2(tokens) - third
        return law(tokens, width) - 0.03 * min(past, 0) + 0.01 * max(past, 0)

    measure = build({"dense": law, "stem-full": bent})
    assert measure.contrast("dense", "stem-full", "tokens:early").differences == pytest.approx([0.03] * 3, abs=1e-6)
    assert measure.contrast("dense", "stem-full", "tokens:late").differences == pytest.approx([-0.01] * 3, abs=1e-6)


def test_a_forecast_reads_the_rungs_below_alone(build):
    measure = build({"dense": law, "stem-full": lambda t, n: law(2 * t, n)})
    at = measure.tokens_at("rung-4")
    for arm in measure.arms.values():
        for variant in ("rung-4", None):
            losses = arm.variants[variant] if variant else arm.losses
            for file in losses.folder.iterdir():
                file.unlink()
    luck = 0.01  # the mean of three seeds
    assert measure.forecast(("dense",), "rung-4").mean == pytest.approx(law(at) + luck, abs=2e-3)
    gap = measure.forecast(("dense", "stem-full"), "rung-4")
    assert gap.mean == pytest.approx(law(at) - law(2 * at), abs=2e-3)
    with pytest.raises(UserError, match="no rung below the first"):
        measure.forecast(("dense",), "rung-1")


@pytest.mark.slow
def test_a_wider_rung_is_predicted_from_the_scales_width_and_its_own_shorter_rungs(build):
    """Both widths are on one law, from which the rung is then extrapolated; its own scores are gone."""
    measure = build({"dense": law, "stem-full": lambda t, n: law(2 * t, n)})
    for arm in measure.arms.values():
        for file in arm.variants["wide-rung-3"].folder.iterdir():
            file.unlink()
    at = measure.variants["wide-rung-3"].at(measure.inputs.scale).training.tokens
    assert measure.forecast(("dense",), "wide-rung-3").mean == pytest.approx(law(at, WIDE) + 0.01, abs=2e-3)
    gap = measure.forecast(("dense", "stem-full"), "wide-rung-3")
    assert gap.mean == pytest.approx(law(at, WIDE) - law(2 * at, WIDE), abs=2e-3)
    narrow = ["rung-1", "rung-2", "rung-3", "rung-4", None]
    assert measure.below("wide-rung-3") == [*narrow, "wide-rung-1", "wide-rung-2"]
    with pytest.raises(UserError, match="no rung below the first"):
        measure.forecast(("dense",), "wide-rung-1")


def test_a_gap_at_another_width_is_compared_after_as_many_tokens_per_parameter(build):
    """Gaps that depend on the width and on the tokens, so that any other rung would give another number."""
    dense = {NARROW: 3.0, WIDE: 2.7}
    measure = build({
        "dense": lambda t, n: dense[n],
        "stem-full": lambda t, n: dense[n] - (0.3 if n == NARROW else 0.1) - 0.01 * np.log2(t / n),
    })  # fmt: skip
    for wide in ("wide-rung-2", "wide-rung-3"):
        result = measure.contrast("dense", "stem-full", f"width@{wide}").differences
        assert result == pytest.approx([0.2] * 3, abs=1e-3)
    assert measure.contrast("stem-full", "dense", "width@wide-rung-2").mean == pytest.approx(-0.2, abs=1e-3)
    at = measure.tokens_a_parameter(2.0)["wide-rung-2"]
    points = 100 * ((0.3 + 0.01 * np.log2(at)) / 3.0 - (0.1 + 0.01 * np.log2(at)) / 2.7)
    assert measure.contrast("dense", "stem-full", "lost@wide-rung-2").mean == pytest.approx(points, abs=0.05)
    del measure.variants["rung-3"]
    with pytest.raises(
        UserError, match=r"'wide-rung-3' has 0.76.? tokens per parameter; the nearest rung of the scale's width has"
    ):
        measure.contrast("dense", "stem-full", "width@wide-rung-3")
