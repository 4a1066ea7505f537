"""Leads along the two lines of recipes/size_ladder.yaml, from made-up losses."""

import numpy as np
import pytest

from stemrepro.measures.comparison import ComparedArm
from stemrepro.measures.sizes import Sizes
from stemrepro.verdicts.contrast import Unmeasured
from tests.made_up import made, write_arm

DENSE = 4.0


def percent(width, vocab):
    """The lead in %: it falls by a fifth a doubling of the width and grows by a quarter a doubling of the rows."""
    return 6 * 0.8 ** np.log2(width) * 1.25 ** np.log2(vocab)


@pytest.fixture
def build(catalog, tmp_path):
    """A measure of dense and STEM full, whose lead is a function of width, vocabulary and table rate."""

    def build(lead):
        measure = made(Sizes, catalog, "size_ladder", {})
        recipe, named = measure.inputs.recipe, catalog.variants
        for arm in ("dense", "stem-full"):
            runs = {}
            for variant in (None, *recipe.variants_of(arm)):
                at = named[variant] if variant else None
                share = lead(*((at.width, at.vocab, at.table_rate) if at else (1, 1, 1))) if arm != "dense" else 0
                losses = [(DENSE + 0.01 * seed) * (1 - share / 100) for seed in range(3)]
                runs[variant] = write_arm(tmp_path / f"{len(list(tmp_path.iterdir()))}", losses)
            measure.arms[arm] = ComparedArm(runs.pop(None), variants=runs)
        return measure

    return build


def test_both_lines_hold_the_scale_and_rise_in_width(catalog):
    measure = made(Sizes, catalog, "size_ladder", {})
    for line, vocab in (("fixed", lambda width: 1), ("grown", lambda width: width)):
        sizes = measure.sizes(line)
        assert [size.width for size in sizes] == [0.5, 0.75, 1, 1.5, 2][: 5 if line == "fixed" else 4]
        assert all(size.vocab == vocab(size.width) for size in sizes)
        assert sizes[2].variant is None


def test_a_lead_is_relative_and_falls_by_its_slope(build):
    measure = build(lambda width, vocab, rate: percent(width, vocab))
    assert measure.contrast("dense", "stem-full", "lead").differences == pytest.approx([6] * 3)
    assert measure.contrast("dense", "stem-full", "lead@width-64").differences == pytest.approx([4.8] * 3)
    lost = measure.contrast("dense", "stem-full", "lost@width-64")
    assert (lost.differences.tolist(), lost.paired) == (pytest.approx([1.2] * 3), False)
    assert measure.contrast("dense", "stem-full", "prose@width-64").differences[0] == pytest.approx(0.048 * DENSE)
    assert measure.contrast("dense", "stem-full", "fall:fixed").differences == pytest.approx([-np.log2(0.8)] * 3)
    assert measure.contrast("dense", "stem-full", "fall:grown").differences == pytest.approx([0] * 3, abs=1e-9)


def test_a_fall_that_grows_bends(build):
    """By 0.1 a doubling, at either vocabulary."""
    measure = build(lambda width, vocab, rate: 6 * 2 ** (-0.05 * np.log2(width) ** 2))
    for line in ("fixed", "grown"):
        assert measure.bend("dense", "stem-full", line).differences == pytest.approx([0.1] * 3)
        with pytest.raises(Unmeasured, match=r"no straight line fits: the fall of stem-full's lead changes by \+0\.10"):
            measure.contrast("dense", "stem-full", f"fall:{line}")
    wide = np.log2([1, 1.5, 2])
    expected = -np.polyfit(wide, -0.05 * wide**2, 1)[0]
    assert measure.contrast("dense", "stem-full", "fall:fixed:wide").differences == pytest.approx([expected] * 3)


def test_a_forecast_knows_the_narrower_models_alone(build):
    """The widest lead is twice what the others foretell."""
    measure = build(lambda width, vocab, rate: percent(width, vocab) * (2 if width == 2 else 1 + 0.01 * (width == 1.5)))
    assert measure.foretold("dense", "stem-full", "width-64").value == pytest.approx(percent(2, 1), rel=0.02)
    missed = measure.contrast("dense", "stem-full", "forecast@width-64")
    assert missed.mean == pytest.approx(1, abs=0.03)
    assert not missed.paired
