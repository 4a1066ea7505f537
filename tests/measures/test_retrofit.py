"""Metrics of the retrofit and of mid-training, on made-up losses."""

import numpy as np
import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures import mid_training, retrofit
from stemrepro.measures.scores import Scores
from tests.made_up import write_arms, write_scores

PROSE = {
    "dense": (3.80, 3.82),
    "dense@second-half": (3.90, 4.00),
    "stem-full@second-half": (3.70, 3.80),
    "stem-full@second-half-token-means": (3.75, 3.86),
    "stem-frozen@second-half-mean-row": (3.86, 3.94),
}


@pytest.fixture
def scores(catalog, tmp_path):
    write_arms(tmp_path, {address: {"prose": prose} for address, prose in PROSE.items()})
    return Scores("retrofit", catalog, "laptop", tmp_path)


def test_gains_compare_the_stages_they_name(scores):
    np.testing.assert_allclose(retrofit.gain(scores, "dense", "stem-full", "token-means").differences, (0.15, 0.14))
    np.testing.assert_allclose(retrofit.lead(scores, "dense", "stem-full", "token-means").differences, (0.05, -0.04))
    np.testing.assert_allclose(retrofit.behind(scores, "stem-full", "dense", "scratch").differences, (0.05, 0.06))
    with pytest.raises(UserError, match="metric 'gain' of dense and stem-full"):
        retrofit.gain(scores, "stem-full", "dense", "token-means")


def test_a_constant_row_that_gains_too_makes_gains_untestable(scores):
    """It ends 0.04 and 0.06 below dense."""
    assert retrofit.no_gain_without_information(scores, 0.02) is None  # of two seeds
    reason = retrofit.no_gain_without_information(scores, -0.08)
    assert "ends -0.077 to 0.177 nats (95%) below dense in two stages, more than the -0.08 that count" in reason


def test_tables_drawn_anew_are_compared_with_those_that_were_kept(catalog, tmp_path):
    losses = {
        "dense@mid": (3.9, 3.8),
        "stem-full@mid": (3.6, 3.5),
        "stem-full@mid-anew": (3.65, 3.57),
        "stem-full@further-80": (3.5, 3.4),
        "stem-full@further-80-anew": (3.51, 3.42),
    }
    write_arms(tmp_path, {address: {"prose": prose} for address, prose in losses.items()})
    scores = Scores("mid_training", catalog, "laptop", tmp_path)
    np.testing.assert_allclose(mid_training.anew(scores, "stem-full", "dense", "prose").differences, (0.05, 0.07))
    later = mid_training.anew(scores, "stem-full", "dense", "prose", at="further-80")
    np.testing.assert_allclose(later.differences, (0.01, 0.02))
    np.testing.assert_allclose(mid_training.despite(scores, "dense", "stem-full", "prose").differences, (0.25, 0.23))
    np.testing.assert_allclose(mid_training.loss(scores, "dense", "stem-full", "prose").differences, 0.3)
    with pytest.raises(UserError, match="metric 'anew' of dense and stem-full"):
        mid_training.anew(scores, "dense", "stem-full", "prose")


def test_a_lead_on_unread_text_is_in_percent_of_bits(catalog, tmp_path):
    """Two seeds; nats and bytes are sums, and every source is by itself."""
    lines = pd.DataFrame(
        {"seed": [0, 0, 1, 1], "source": ["code", "mathematics"] * 2, "tokens": 10, "bytes": [20, 40, 20, 40]}
    )
    for arm, nats in (("dense", [30.0, 30.0, 40.0, 50.0]), ("stem-full", [27.0, 33.0, 38.0, 50.0])):
        write_scores(tmp_path, "elsewhere", arm, 2, {"elsewhere": lines.assign(nats=nats)})
    scores = Scores("mid_training", catalog, "laptop", tmp_path)
    np.testing.assert_allclose(mid_training.unread(scores, "dense", "stem-full", "code").differences, (10, 5))
    np.testing.assert_allclose(mid_training.unread(scores, "dense", "stem-full", "mathematics").differences, (-10, 0))
