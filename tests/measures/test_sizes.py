"""Leads along the two lines of recipes/size_ladder.yaml, from made-up losses."""

import numpy as np
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures.sizes import along, derivative, fall, lead, lost, sizes, table_rate
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import made, write_arms

DENSE = 4.0
PAIR = ("dense", "stem-full")


def percent(width, vocab):
    """The lead in %: it falls by a fifth a doubling of the width and grows by a quarter a doubling of the rows."""
    return 6 * 0.8 ** np.log2(width) * 1.25 ** np.log2(vocab)


@pytest.fixture
def build(catalog, tmp_path):
    """Scores of dense and STEM full, whose lead is a function of width, vocabulary and table rate."""

    def build(lead):
        scores, arms = made(catalog, "size_ladder", tmp_path), {}
        for arm in PAIR:
            for variant in ("main", *scores.recipe.variants_of(arm)):
                at = catalog.variant(variant)
                share = 0 if arm == "dense" else lead(at.width, at.vocab, at.table_rate)
                # Seeds differ by a hair: without any variance the last bits would decide whether a fall bends.
                leads = [share / 100 * (1 + 1e-10 * np.sin(7 * seed * at.width)) for seed in range(5)]
                arms[f"{arm}@{variant}"] = {"prose": [(DENSE + 0.01 * seed) * (1 - leads[seed]) for seed in range(5)]}
        write_arms(tmp_path, arms)
        return scores

    return build


def test_both_lines_hold_the_scale_and_rise_in_width(catalog, tmp_path):
    scores = made(catalog, "size_ladder", tmp_path)
    for line, vocab in (("fixed", lambda width: 1), ("grown", lambda width: width)):
        models = sizes(scores, line)
        widths = [0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4] if line == "fixed" else [0.5, 0.75, 1, 1.5, 2]
        assert [size.width for size in models] == widths
        assert all(size.vocab == vocab(size.width) for size in models)
        half = sizes(scores, line, arms=("dense", "stem-half"))  # not trained beyond the middle
        assert [size.width for size in half] == ([0.5, 0.75, 1] if line == "fixed" else [1])
        assert models[2].variant == "main"


def test_what_differs_at_the_scale_s_width_is_in_order(catalog, tmp_path):
    scores = made(catalog, "size_ladder", tmp_path)
    assert along(scores, "vocab") == {512: "vocab-512", 1024: "main", 2048: "vocab-2048", 4096: "vocab-4096"}
    assert along(scores, "layers") == {3: "layers-3", 6: "main", 12: "layers-12", 24: "layers-24"}


def test_a_lead_is_relative_and_falls_by_its_slope(build):
    scores = build(lambda width, vocab, rate: percent(width, vocab))
    assert lead(scores, *PAIR).differences == pytest.approx([6] * 5)
    assert lead(scores, *PAIR, "width-64").differences == pytest.approx([4.8] * 5)
    less = lost(scores, *PAIR, "width-64")
    assert (less.differences.tolist(), less.paired) == (pytest.approx([1.2] * 5), False)
    three = [-np.log2(0.8)] * 3  # seeds of the three widest
    assert fall(scores, *PAIR, "fixed").differences == pytest.approx(three)
    assert fall(scores, *PAIR, "grown").differences == pytest.approx([0] * 5, abs=1e-9)


def test_a_fall_that_grows_bends(build):
    """By 0.1 a doubling, at either vocabulary."""
    scores = build(lambda width, vocab, rate: 6 * 2 ** (-0.05 * np.log2(width) ** 2))
    for line, seeds in (("fixed", 3), ("grown", 5)):
        assert derivative(scores, PAIR, line, 2).differences == pytest.approx([0.1] * seeds)
        with pytest.raises(Unmeasured, match=r"no straight line fits: the fall of stem-full's lead changes by \+0\.10"):
            fall(scores, *PAIR, line)
    wide = np.log2([1, 1.5, 2, 2.5, 3, 4])
    expected = -np.polyfit(wide, -0.05 * wide**2, 1)[0]
    assert derivative(scores, PAIR, "fixed", 1, wide=True).differences == pytest.approx([expected] * 3)


def test_no_lead_has_no_logarithm(build):
    scores = build(lambda width, vocab, rate: -1 if width == 2 else 6)
    with pytest.raises(Unmeasured, match="stem-full has no lead over dense at width-64 in every seed"):
        fall(scores, *PAIR, "fixed")


def test_a_table_s_rate_is_compared_at_one_size(build):
    scores = build(lambda width, vocab, rate: percent(width, vocab) + (0.5 if rate != 1 else 0))
    assert table_rate(scores, *PAIR, "width-64-table-rate").differences == pytest.approx([0.5] * 5)
    with pytest.raises(UserError, match="'width-64' differs from no variant of size_ladder by its table_rate alone"):
        table_rate(scores, *PAIR, "width-64")
