"""Scores that a recipe reads of its arms, contrasts at common and own rates, conditions."""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.config.scale import TunedSettings
from stemrepro.measures import comparison
from stemrepro.measures.comparison import OWN_RATES, at_setting, interaction, loss
from stemrepro.measures.losses import arm_losses
from stemrepro.verdicts.effect import Untested
from tests.made_up import made, write_arm, write_arms, write_scores

BEST = {
    "dense": TunedSettings(learning_rate=0.008),
    "stem-full": TunedSettings(learning_rate=7.0, table_rate_factor=2.0),
}
GRAVEYARD = "ablation_graveyard"


def test_own_rates(catalog, tmp_path):
    def place(arm, best):
        """The variant of the losses at the arm's own rate."""
        scores = made(catalog, GRAVEYARD, tmp_path, tuned=best, learning_rate=0.008)
        losses = at_setting(scores, OWN_RATES, arm)
        return losses and losses.address.variant

    assert place("dense", BEST) == "main"  # the common rate is its best
    assert place("stem-third", BEST) == "own-rate"
    assert place("gate-replaced", BEST) is None  # its family's best is not known
    other = BEST | {"stem-full": TunedSettings(learning_rate=0.008, table_rate_factor=2.0)}
    assert place("stem-half", BEST) is None  # its family's best was not run
    assert place("stem-half", other) is None  # the rate is, the table's is another
    plain = BEST | {"stem-full": TunedSettings(learning_rate=0.008)}
    assert place("stem-half", plain) == "main"


@pytest.fixture
def arms(tmp_path):
    """The graveyard's controls: STEM full gains 0.3 to 0.4 over dense, half at its own rate; the memory gains 0.1."""
    prose = {
        "dense": [4.0, 4.1, 4.2], "token-only": [3.9, 4.0, 4.1], "stem-full": [3.7, 3.7, 3.9],
        "stem-full@own-rate": [3.85, 3.85, 4.05],
    }  # fmt: skip
    write_arms(tmp_path, {address: {"prose": losses} for address, losses in prose.items()})


@pytest.fixture
def graveyard(catalog, arms, tmp_path):
    """graveyard(**prose) -> scores of the recipe, with other losses of arms."""

    def build(controls=("stem-frozen",), **prose):
        for arm, losses in prose.items():
            write_arm(tmp_path, arm.replace("_", "-"), losses)
        recipe = ("dense", "token-only", "stem-full", *controls)
        return made(catalog, GRAVEYARD, tmp_path, recipe, tuned=BEST, learning_rate=0.008)

    return build


def test_contrasts_at_both_rates(graveyard):
    scores = graveyard()

    def own(high, low, **settings):
        effect = loss(scores, high, low, "prose", own=True, **settings)
        return effect and effect.differences

    assert loss(scores, "dense", "stem-full", "prose").differences == pytest.approx([0.3, 0.4, 0.3])
    assert own("dense", "stem-full") == pytest.approx([0.15, 0.25, 0.15])
    assert own("stem-full", "dense") == pytest.approx([-0.15, -0.25, -0.15])
    for pair in (("dense", "token-only"), ("dense", "dense")):  # one wasn't trained so; both have the common rate
        assert own(*pair) is None
    assert own("dense", "stem-full", at="main") is None


def test_a_lead_is_in_percent_of_the_firsts_loss(graveyard):
    expected = 100 * np.array([0.3 / 4.0, 0.4 / 4.1, 0.3 / 4.2])
    assert comparison.lead(graveyard(), "dense", "stem-full").differences == pytest.approx(expected)


def test_interaction_by_hand(catalog, tmp_path):
    """What the up-projection is worth without a table less what it is worth with one, at the scale and at a variant."""
    losses = {"dense": [3.0, 3.1], "up-removed": [3.2, 3.25], "stem-dagger-full": [2.7, 2.8], "stem-full": [2.8, 2.85]}
    for at, extra in (("", 0.0), ("@rung-1", 0.3)):
        write_arms(tmp_path, {f"{arm}{at}": {"prose": [x + extra for x in prose]} for arm, prose in losses.items()})
    scores = made(catalog, "token_ladder", tmp_path)
    for settings in ({}, {"at": "rung-1"}):
        effect = interaction(scores, "dense", "up-removed", **settings)
        assert effect.differences == pytest.approx([-0.2 + 0.1, -0.15 + 0.05])
        assert effect.item_se > 0
    assert interaction(scores, "up-removed", "dense").differences == pytest.approx([0.1, 0.1])
    with pytest.raises(UserError, match=r"pairs without a table, \[dense, up-removed\]"):
        interaction(scores, "dense", "stem-full")
    fewer = made(catalog, "token_ladder", tmp_path, ("dense", "up-removed", "stem-full"))
    with pytest.raises(UserError, match="needs the arm 'stem-dagger-full'"):
        interaction(fewer, "dense", "up-removed")


def test_the_official_init_needs_both_arms_there(catalog, arms, tmp_path):
    write_arm(tmp_path, "stem-full@official-start", [3.0, 3.0, 3.0])
    write_arm(tmp_path, "dense@official-start", [3.5, 3.6, 3.7])
    scores = made(catalog, GRAVEYARD, tmp_path)
    assert comparison.official(scores, "dense", "stem-full").differences == pytest.approx([0.5, 0.6, 0.7])
    assert comparison.official(scores, "dense", "stem-third") is None


def test_a_memory_explains_less_than_three_quarters(graveyard):
    failed = comparison.token_only_below_three_quarters
    assert failed(graveyard()) is None  # 0.1 of 0.33
    assert "90% of the gap" in failed(graveyard(token_only=[3.73, 3.74, 3.93]))
    assert failed(graveyard(token_only=[3.7, 3.9, 3.8])) is None  # as much of the gap, and nothing that is shown
    assert "no gap" in failed(graveyard(stem_full=[4.0, 4.1, 4.2]))


def test_rows_without_information_must_gain_no_more_than_counts(graveyard):
    """Dense ends at 4.1 in the mean; the frozen control at 4.07, the shuffled one at 4.15.

    A noisy one ends as low as the frozen one, and nothing is shown.
    """

    def reason(m, **controls):
        names = tuple(name.replace("_", "-") for name in controls)
        return comparison.no_gain_without_information(graveyard(names, **controls), m)

    frozen, shuffled = [3.971, 4.07, 4.169], [4.05, 4.15, 4.25]
    words = (
        "stem-frozen, whose rows hold nothing that was learnt of a token, ends 0.028 to 0.032 nats (95%) below dense, "
        "more than the 0.02 that count"
    )
    assert reason(0.02, stem_frozen=frozen, stem_shuffled=shuffled) == words
    assert reason(0.02, stem_frozen=frozen) == words
    assert reason(0.05, stem_frozen=frozen, stem_shuffled=shuffled) is None
    assert reason(0.02, stem_frozen=[3.9, 4.1, 4.21]) is None
    assert reason(0.02, stem_shuffled=shuffled) is None  # it ends above dense
    assert reason(0.02, stem_frozen=shuffled, stem_shuffled=frozen).startswith("stem-shuffled, whose rows")


def test_a_bucket_without_targets_is_not_testable(graveyard):
    """write_arm has pairs 0 and 4-31 alone."""
    scores = graveyard()
    for own in (False, True):
        with pytest.raises(Untested, match="no target at this scale fell into the bucket 1-3"):
            loss(scores, "dense", "stem-full", "prose", pair="1-3", own=own)
    assert loss(scores, "dense", "stem-full", "prose", pair="4-31").differences == pytest.approx([0.3, 0.4, 0.3])


def test_a_task_that_the_scale_lacks_is_untested(graveyard, tmp_path):
    scores = graveyard()
    for arm in ("dense", "stem-full"):
        write_scores(tmp_path, "benchmarks", arm, 3, tasks={})
    with pytest.raises(Untested, match="this scale has no items of it"):
        comparison.accuracy(scores, "dense", "stem-full", "held_out")


def test_an_arm_is_read_once_of_the_seeds_that_the_recipe_has(catalog, arms, tmp_path):
    scores = made(catalog, GRAVEYARD, tmp_path)
    assert arm_losses(scores, "dense") is arm_losses(scores, "dense")
    assert arm_losses(scores, "stem-full", "own-rate").address.variant == "own-rate"
    assert arm_losses(scores, "dense", "main") is arm_losses(scores, "dense")
    assert arm_losses(scores, "stem-half").count == 3
    with pytest.raises(UserError, match="variant 'own-rte' is unknown; did you mean 'own-rate'"):
        arm_losses(scores, "stem-full", "own-rte")
