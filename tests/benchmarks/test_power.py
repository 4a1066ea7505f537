"""Power against numbers that were computed elsewhere, and against simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks import power
from benchmarks.power import Spread, row, rows, upper
from stemrepro.verdicts.effect import Effect
from stemrepro.verdicts.rule import Evidence
from tests.conftest import ROOT


def plain(sd, alpha=0.05, equivalent=False):
    return Spread(sd, equivalent, alpha)


@pytest.mark.parametrize(
    ("effect", "seeds", "alpha", "expected"),
    [
        (0.05, 3, 0.05, 0.85),
        (0.05, 3, 0.05 / 8, 0.22),
        (0.05, 5, 0.05 / 8, 0.92),
        (0.03, 3, 0.05, 0.52),
        (0.03, 5, 0.05, 0.94),
        (0.03, 8, 0.05 / 8, 0.95),
    ],
)
def test_power_of_a_paired_t_test(effect, seeds, alpha, expected):
    """The numbers by which the seeds of this project were planned: a spread of 0.014 nats."""
    assert plain(0.014, alpha).power(effect, seeds) == pytest.approx(expected, abs=0.006)


def test_the_detectable_effect_and_the_seeds_that_find_it_are_one_curve():
    spread = plain(0.014)
    assert spread.power(spread.detectable(5), 5) == pytest.approx(0.8, abs=1e-6)
    assert (spread.seeds(1.001 * spread.detectable(7)), spread.seeds(0.999 * spread.detectable(7))) == (7, 8)
    assert plain(10.0).seeds(0.01) == math.inf


def test_an_equivalence_is_shown_as_often_as_in_simulation():
    values = np.random.default_rng(0).normal(0, 0.02, (20_000, 5))
    half = stats.t.ppf(0.95, 4) * values.std(axis=1, ddof=1) / np.sqrt(5)
    shown = (np.abs(values.mean(axis=1)) + half < 0.025).mean()
    assert plain(0.02, alpha=0.10, equivalent=True).power(0.025, 5) == pytest.approx(shown, abs=0.01)


@pytest.mark.slow
def test_the_upper_bound_holds_four_times_in_five():
    estimates = np.random.default_rng(1).normal(0, 1, (20_000, 3)).std(axis=1, ddof=1)
    assert np.mean([upper(sd, 3) > 1 for sd in estimates]) == pytest.approx(0.8, abs=0.01)


def test_a_claim_is_judged_at_99_percent():
    wide = Effect(0.02 * np.array([-1.0, 0.0, 1.0]))
    larger = row("r", "c", Evidence("greater", wide, 0.05))
    assert (larger["SD"], larger["seeds"]) == (pytest.approx(0.02), 3)
    assert larger["seeds for m"] == plain(0.02, 0.01).seeds(0.05)
    equal = row("r", "c", Evidence("equivalent", wide, 0.05))
    assert equal["seeds for m"] == plain(0.02, 0.01, equivalent=True).seeds(0.05)


def test_a_scale_has_its_own_recipes_alone(catalog, monkeypatch):
    """The ladder's recipe isn't run at the laptop, so that it has no scores there."""
    two = {name: catalog.recipes[name] for name in ("angular_spread", "token_ladder")}
    monkeypatch.setattr(power, "load", lambda: catalog.model_copy(update={"recipes": two}))
    assert {line["recipe"] for line in rows("laptop", ROOT / "scores")} == {"angular_spread"}
