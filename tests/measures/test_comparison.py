"""Scores that a recipe reads of its arms, contrasts at common and own rates, preconditions."""

from pathlib import Path

import pytest

from stemrepro.config.scale import TunedSettings
from stemrepro.measures.comparison import OFFICIAL_INIT, OWN_RATES, ComparedArm, Comparison
from stemrepro.measures.losses import ArmLosses
from stemrepro.verdicts.contrast import Unmeasured
from tests.made_up import made, write_arm

BASE, OTHER = ArmLosses(Path("scores/x/losses/main/base")), ArmLosses(Path("scores/x/losses/own-rate/arm"))


BEST = {
    "dense": TunedSettings(learning_rate=0.008),
    "stem-full": TunedSettings(learning_rate=7.0, table_rate_factor=2.0),
}


def test_own_rates(catalog):
    def at_own_rate(arm, scores, best):
        measure = made(Comparison, catalog, "ablation_graveyard", {arm: scores}, tuned=best, learning_rate=0.008)
        return measure.at(OWN_RATES, arm)

    assert at_own_rate("dense", ComparedArm(BASE), BEST) is BASE  # the common rate is its best
    assert at_own_rate("stem-third", ComparedArm(BASE), BEST) is None  # its family's best was not run
    assert at_own_rate("stem-third", ComparedArm(BASE, variants={"own-rate": OTHER}), BEST) is OTHER
    assert at_own_rate("gate-replaced", ComparedArm(BASE), BEST) is None  # its family's best is not known
    other = BEST | {"stem-full": TunedSettings(learning_rate=0.008, table_rate_factor=2.0)}
    assert at_own_rate("stem-third", ComparedArm(BASE), other) is None  # the rate is, the table's is another
    plain = BEST | {"stem-full": TunedSettings(learning_rate=0.008)}
    assert at_own_rate("stem-third", ComparedArm(BASE), plain) is BASE


@pytest.fixture
def arms(tmp_path):
    """The graveyard's controls: STEM full gains 0.3 to 0.4 over dense, half at its own rate; the memory gains 0.1."""
    stem = ComparedArm(
        write_arm(tmp_path / "stem-full", [3.7, 3.7, 3.9]),
        variants={"own-rate": write_arm(tmp_path / "own-rate", [3.85, 3.85, 4.05])},
    )
    dense = write_arm(tmp_path / "dense", [4.0, 4.1, 4.2])
    return {"dense": dense, "token-only": write_arm(tmp_path / "token-only", [3.9, 4.0, 4.1]), "stem-full": stem}


def test_contrasts_at_both_rates(catalog, arms):
    measure = made(Comparison, catalog, "ablation_graveyard", arms, tuned=BEST, learning_rate=0.008)
    assert measure.contrast("dense", "stem-full", "prose").differences == pytest.approx([0.3, 0.4, 0.3])
    assert measure.own("dense", "stem-full", "prose").differences == pytest.approx([0.15, 0.25, 0.15])
    assert measure.own("dense", "token-only", "prose") is None
    assert measure.own("stem-full", "dense", "prose").differences == pytest.approx([-0.15, -0.25, -0.15])
    assert measure.own("dense", "dense", "prose") is None
    for metric in ("accuracy:held_out", "prose:pair=1-3"):  # no loss; a bucket that no target fell into
        assert measure.own("dense", "stem-full", metric) is None


def test_the_official_init_needs_both_arms_there(catalog, arms, tmp_path):
    started = {name: ComparedArm(arms[name].losses if name == "stem-full" else arms[name]) for name in arms}
    measure = made(Comparison, catalog, "ablation_graveyard", started, tuned={})
    started["stem-full"].variants["official-start"] = write_arm(tmp_path / "official-start", [3.0, 3.0, 3.0])
    assert measure.official("dense", "stem-full") is None
    started["dense"].variants["official-start"] = write_arm(tmp_path / "dense-there", [3.5, 3.6, 3.7])
    assert measure.official("dense", "stem-full").differences == pytest.approx([0.5, 0.6, 0.7])


def test_a_setting_is_that_of_the_bases_budget(catalog, arms):
    variants = {"official-start": BASE, "half-official-start": OTHER, "own-rate": BASE, "half-own-rate": OTHER}
    dense = {"dense": ComparedArm(arms["dense"], variants=variants)}
    for recipe, wanted in (("table_design", OTHER), ("ablation_graveyard", BASE)):
        measure = made(Comparison, catalog, recipe, dense, tuned=BEST)
        assert [measure.at(setting, "dense") for setting in (OWN_RATES, OFFICIAL_INIT)] == [wanted, wanted]


def failed(catalog, arms, precondition, metric="prose", **conditions):
    return made(Comparison, catalog, "ablation_graveyard", arms).untestable(metric, precondition, **conditions)


def test_preconditions(catalog, arms, tmp_path):
    assert failed(catalog, arms, "none") is None
    memory = "token-only-below-three-quarters"
    assert failed(catalog, arms, memory) is None  # 0.1 of 0.33
    strong = arms | {"token-only": write_arm(tmp_path / "strong", [3.73, 3.74, 3.93])}
    assert "90% of the gap" in failed(catalog, strong, memory)
    noisy = arms | {"token-only": write_arm(tmp_path / "noisy", [3.7, 3.9, 3.8])}
    assert failed(catalog, noisy, memory) is None  # as much of the gap, and nothing that is shown
    gone = arms | {"stem-full": arms["dense"]}
    assert "no gap" in failed(catalog, gone, memory)


def test_rows_without_information_must_gain_no_more_than_counts(catalog, arms, tmp_path):
    """Dense ends at 4.1 in the mean; the frozen control at 4.07, the shuffled one at 4.15.

    A noisy one ends as low as the frozen one, and nothing is shown.
    """

    def reason(m, **controls):
        return failed(catalog, arms | controls, "no-gain-without-information", smallest_effect=m)

    frozen, shuffled = (
        write_arm(tmp_path / "frozen", [3.971, 4.07, 4.169]),
        write_arm(tmp_path / "shuffled", [4.05, 4.15, 4.25]),
    )
    both = {"stem-frozen": frozen, "stem-shuffled": shuffled}
    words = (
        "stem-frozen, whose rows hold nothing that was learnt of a token, ends 0.028 to 0.032 nats (95%) below dense, "
        "more than the 0.02 that count"
    )
    assert reason(0.02, **both) == words
    assert reason(0.02, **{"stem-frozen": frozen}) == words
    assert reason(0.05, **both) is None
    assert reason(0.02, **{"stem-frozen": write_arm(tmp_path / "noisy", [3.9, 4.1, 4.21])}) is None
    assert reason(0.02, **{"stem-shuffled": shuffled}) is None  # it ends above dense
    assert reason(0.02, **{"stem-frozen": shuffled, "stem-shuffled": frozen}).startswith("stem-shuffled, whose rows")


def test_a_bucket_without_targets_is_not_testable(catalog, arms):
    """write_arm has pairs 0 and 4-31 alone."""
    assert failed(catalog, arms, "none", "prose:pair=1-3") == "no target at this scale fell into the bucket 1-3"
    assert failed(catalog, arms, "none", "prose:pair=4-31") is None


def test_a_run_that_diverged_is_unmeasured(catalog, arms, tmp_path):
    arms["stem-full"] = write_arm(tmp_path / "main" / "stem-full", [3.7, 3.7, 3.9], diverged=(2,))
    measure = made(Comparison, catalog, "ablation_graveyard", arms)
    with pytest.raises(Unmeasured, match="stem-full diverged: the loss of seed 2 is NaN from step 15 on"):
        measure.contrast("dense", "stem-full", "prose")
    with pytest.raises(Unmeasured, match="stem-full diverged"):
        measure.untestable("prose", "token-only-below-three-quarters")
    assert measure.contrast("dense", "token-only", "prose").differences == pytest.approx([0.1, 0.1, 0.1])
