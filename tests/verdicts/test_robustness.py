"""Signs in settings other than the common one."""

import numpy as np
import pytest

from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import OFFICIAL_INIT, ROBUSTNESS, VARIANTS, same_sign, sign, sign_flips


def around(mean, sd=0.002):
    return Contrast(mean + sd * np.array([-1.0, -0.5, 0.0, 0.5, 1.0]))


@pytest.mark.parametrize(
    ("mean", "sd", "null_band", "expected"),
    [(0.05, 0.002, 0, 1), (-0.05, 0.002, 0, -1), (0.05, 0.1, 0, 0), (0.05, 0.002, 0.06, 0), (-0.07, 0.002, 0.06, -1),
     (0.07, 0.002, 0.06, 1)],
)  # fmt: skip
def test_a_sign_stands_out_of_its_noise(mean, sd, null_band, expected):
    assert sign(around(mean, sd), null_band) == expected


def test_a_sign_is_one_at_95_percent():
    """Half an interval is 2.776 errors at four degrees of freedom."""
    error = around(0.0, 1.0).seed_se
    assert [sign(around(times * error, 1.0), 0) for times in (2.7, 2.85, -2.7, -2.85)] == [0, 1, 0, -1]


@pytest.mark.parametrize(
    ("common", "other", "null_band", "expected"),
    [
        (0.05, 0.03, 0, True),
        (-0.05, -0.03, 0, True),
        (0.05, -0.03, 0, False),
        (0.05, 0.0, 0, False),
        (0.0, 0.05, 0, False),
        (0.0, 0.0, 0, False),  # no sign that could be the same
        (0.0, 0.01, 0.02, True),  # an equivalence that both show nothing against
        (0.0, 0.05, 0.02, False),
        (0.05, 0.05, 0.02, True),
        (0.05, -0.05, 0.02, False),
    ],
)
def test_a_claim_holds_in_both_settings_where_the_same_sign_stands_out(common, other, null_band, expected):
    assert same_sign((around(common),), (around(other),), null_band) is expected


def test_every_pair_of_an_ordering_has_to_agree():
    common = (around(0.05), around(0.05))
    assert same_sign(common, (around(0.05), around(0.02)), 0)
    assert not same_sign(common, (around(0.05), around(-0.02)), 0)


def test_only_two_clear_signs_turn():
    assert sign_flips((around(0.05),), {OFFICIAL_INIT: (around(0.01),)}, 0) is None
    assert sign_flips((around(0.05),), {OFFICIAL_INIT: (around(-0.01, sd=0.05),)}, 0) is None
    reason = sign_flips((around(-0.05),), {OFFICIAL_INIT: (around(0.01),)}, 0)
    assert reason == "the sign turns at the official start of the embeddings: -0.050 at the common start, +0.010 there"
    assert sign_flips((around(0.05),), {}, 0) is None


def test_every_setting_has_a_variant():
    assert VARIANTS.keys() == ROBUSTNESS.keys()
