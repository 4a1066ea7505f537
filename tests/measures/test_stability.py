import re
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from stemrepro.config.scale import TunedSettings, Variant
from stemrepro.measures.comparison import ComparedArm
from stemrepro.measures.stability import (
    Stability,
    blown_up,
    coincidence,
    rate,
    rate_limit,
    rate_sensitivity,
    spikes,
)
from stemrepro.verdicts.contrast import Unmeasured
from tests.made_up import made


def falling(steps=400, seed=0):
    noise = np.random.default_rng(seed).normal(0, 0.05, steps)
    return 4 + 3 * np.exp(-np.arange(steps) / 100) + noise


def test_spikes_are_found_and_neighbours_are_one():
    loss = falling()
    loss[[150, 151, 152, 300]] += 2.0
    assert spikes(loss).tolist() == [150, 300]
    loss[10] += 5
    assert spikes(loss).tolist() == [150, 300]  # the start doesn't count


@pytest.mark.parametrize("steps", [10, 50, 51])
def test_runs_too_short_for_a_spike_have_none(steps):
    assert rate(np.ones((2, steps))).tolist() == [0, 0]


@pytest.mark.parametrize("steps", [10, 50, 51, 700, 900])
def test_spikes_are_those_of_the_definition_step_by_step(steps):
    """By another library's median absolute deviation; each of the 50 values before a step moves the limit at 5.2."""
    loss = np.random.default_rng(0).choice([0.0, 1.0, 5.2], steps, p=[0.48, 0.48, 0.04])
    high = [False] * steps
    for step in range(max(50, steps // 10), steps):
        before = loss[step - 50 : step]
        limit = np.median(before) + 6 * stats.median_abs_deviation(before, scale=1 / 1.4826)
        high[step] = bool(loss[step] > limit)
    expected = [step for step in range(1, steps) if high[step] and not high[step - 1]]
    assert spikes(loss).tolist() == expected
    assert (len(expected) > 3) == (steps > 51)


def test_spikes_of_hard_batches_coincide_in_runs_of_the_same_seed():
    first = np.stack([falling(seed=0), falling(seed=1)])
    second = np.stack([falling(seed=2), falling(seed=3)])
    first[0, 150] += 3
    first[0, 300] += 3
    second[0, 151] += 3
    assert coincidence(first, second) == (0.5, 0.0)
    assert np.isnan(coincidence(np.stack([falling()]), second)).all()


@dataclass
class Ended:
    """Runs of two seeds that start at a loss and end at the given ones."""

    ends: tuple
    learning_rate: float
    start: float = 7.0

    @property
    def steps(self):
        loss = np.tile(np.array(self.ends)[:, None], (1, 20))
        loss[:, 0] = self.start
        return {"loss": loss}

    @property
    def summary(self):
        return {"learning_rate": self.learning_rate, "training_entropy": 6.0}


def test_the_limit_is_where_the_end_crosses_token_frequencies():
    arm = [Ended((6.5, 7.0), 16.0), Ended((5.5, 6.5), 4.0), Ended((5.5, 7.0), 8.0)]
    assert rate_limit(arm, 1.0) == pytest.approx([3.5, 2.0])  # half way between 8 and 16; at the first rate already
    arm = [Ended((5.5, 5.5), 4.0), Ended((5.5, np.nan), 8.0)]
    assert rate_limit(arm, 1.0) == pytest.approx([4.0, 3.0])  # never: one doubling on; NaN: at that rate


def test_sensitivity_is_the_mean_over_log_rates_less_the_best():
    """Rates 1, 2 and 8 in any order: their losses count for half, one and a half and one of three doublings."""
    arm = [Ended((5.0, 6.0), 8.0), Ended((4.0, 5.0), 1.0), Ended((3.0, 6.5), 2.0)]
    first = (0.5 * (4 + 3) * 1 + 0.5 * (3 + 5) * 2) / 3 - 3
    second = (0.5 * (5 + 6.5) * 1 + 0.5 * (6.5 + 6) * 2) / 3 - 5
    assert rate_sensitivity(arm) == pytest.approx([first, second])


@pytest.mark.parametrize(
    ("end", "start", "vocab", "expected"),
    [
        (np.nan, 7.0, 1024, True),
        (6.9, 7.0, 1024, False),  # log 1024 is 6.931
        (6.95, 7.0, 1024, True),  # below its start, above a uniform guess
        (6.5, 6.0, 1024, True),  # above its start
        (5.9, 6.0, 1024, False),
        (6.95, 7.0, 2048, False),
    ],
)
def test_a_run_blows_up_where_it_ends_above_its_start_or_a_uniform_guess(end, start, vocab, expected):
    assert blown_up(Ended((end,), 1.0, start), vocab).tolist() == [expected]


@dataclass
class Whole:
    """A whole run's losses and gradient norms."""

    steps: dict
    summary: dict


@pytest.fixture
def arms():
    """Two arms: dense spikes once in the loss of its first seed, STEM in the gradient norm of both.

    STEM bears less at its own rate.
    """

    def arm(loss_spikes, norm_spikes, variants):
        series = {key: np.stack([falling(seed=0), falling(seed=1)]) for key in ("loss", "norm")}
        for key, at in (("loss", loss_spikes), ("norm", norm_spikes)):
            for seed in at:
                series[key][seed, 200] += 3
        return ComparedArm(Whole(series, {"seeds": 2}), variants=variants)

    clipped = {"rate-16": Ended((5.0, 5.0), 16.0), "rate-64": Ended((7.0, 7.0), 64.0)}
    tuned = {"rate-16-own": Ended((7.0, 7.0), 16.0), "rate-64-own": Ended((7.0, 7.0), 64.0)}
    loose, calm = {"rate-16-unclipped": Ended((9.0, 9.0), 16.0)}, {"rate-16-unclipped": Ended((6.0, 6.0), 16.0)}
    whole = Whole({key: np.stack([falling(seed=0)]) for key in ("loss", "norm")}, {"seeds": 1})
    return {
        "dense": arm([0], [], clipped | loose),
        "stem-third": arm([], [0, 1], clipped | tuned | calm | {"own-rate": whole}),
    }


BEST = {"dense": TunedSettings(learning_rate=1), "stem-full": TunedSettings(learning_rate=1, table_rate_factor=8)}


@pytest.fixture
def stability(catalog, arms):
    return made(Stability, catalog, "training_stability", arms, learning_rate=1.0, tuned=BEST)


def test_contrasts_at_the_common_rate(stability):
    def differences(metric):
        return stability.contrast("dense", "stem-third", metric).differences.tolist()

    assert differences("spikes") == pytest.approx([1000 / 350, 0])
    assert differences("norm-spikes") == pytest.approx([-1000 / 350] * 2)
    assert differences("learning-rate-limit") == [0, 0]  # unclipped variants and those at own rates are left out
    assert differences("rate-sensitivity") == [0, 0]
    assert differences("blow-ups") == pytest.approx([2 / 3 - 1 / 3] * 2)  # of three runs each, clipped or not


def test_contrasts_at_own_rates(stability):
    def differences(metric):
        return stability.own("dense", "stem-third", metric).differences

    assert differences("learning-rate-limit") == pytest.approx([1.0, 1.0])  # dense half way from 16 to 64, STEM at 16
    assert differences("rate-sensitivity") == pytest.approx([1.0, 1.0])  # dense 5 and 7, STEM 7 at both
    assert differences("spikes") == pytest.approx([1000 / 350])  # over the seeds that both have
    assert stability.own("dense", "stem-third", "blow-ups") is None
    assert stability.own("dense", "dense", "spikes") is None


def test_at_own_rates_both_arms_need_the_same_rates(stability, arms):
    """Else the one that was also tried at lower ones would seem more sensitive."""
    del arms["stem-third"].variants["rate-16-own"]
    for metric in ("rate-sensitivity", "learning-rate-limit"):
        assert stability.own("dense", "stem-third", metric) is None
    assert stability.own("dense", "stem-third", "spikes")


def test_an_arm_without_short_runs_at_its_own_rate_is_not_taken_at_the_common_one(stability, arms):
    """STEM's best rate is another than the common one, which is dense's."""
    for name in ("rate-16-own", "rate-64-own"):
        del arms["stem-third"].variants[name]
    for pair in (("dense", "stem-third"), ("stem-third", "stem-third")):
        assert stability.own(*pair, "rate-sensitivity") is None


@pytest.mark.parametrize(
    ("ends", "tokens", "words"),
    [
        ((5.4, 5.5), 0.125, None),  # 0.55 below the entropy of 6
        ((5.55, 5.55), 0.125, "ends 0.45 to 0.45 nats .95%. below token frequencies; 0.5 are needed"),
        (
            (5.0, 5.0),
            0.5,
            r"no short run of dense at the common rate \(a variant with rate 1 and 0.125 of the tokens\)",
        ),
        (None, 0.125, "no short run of dense at the common rate"),
    ],
)
def test_dense_must_clear_token_frequencies_in_a_short_run(catalog, arms, ends, tokens, words):
    variants = {"rate-1": Variant(tokens=tokens)}
    if ends:
        arms["dense"].variants["rate-1"] = Ended(ends, 1.0)
    more = catalog.model_copy(update={"variants": catalog.variants | variants})
    measure = made(Stability, more, "training_stability", arms, learning_rate=1.0, tuned=BEST)
    reason = measure.untestable("rate-sensitivity", "dense-clears-unigram")
    assert reason is None if words is None else re.search(words, reason)


def test_a_short_run_differs_from_the_scale_in_rate_and_budget_alone(catalog, arms):
    """The one at the common rate among them; not those of other budgets, widths and initialisations."""
    variants = {
        "rate-1": Variant(tokens=0.125),
        "narrow": Variant(tokens=0.125, width=0.5),
        "half": Variant(tokens=0.5),
    }
    more = catalog.model_copy(update={"variants": catalog.variants | variants})
    dense = arms["dense"]
    dense.variants |= {name: Ended((5.0, 5.0), 1.0) for name in variants}
    measure = made(Stability, more, "training_stability", arms, learning_rate=1.0, tuned=BEST)
    assert list(measure.short_runs("dense")) == ["rate-16", "rate-64", "rate-1"]
    assert list(measure.short_runs("dense", clipped=False)) == ["rate-16", "rate-64", "rate-16-unclipped", "rate-1"]
    assert list(measure.short_runs("dense", own=True)) == ["rate-16", "rate-64", "rate-1"]
    assert list(measure.short_runs("stem-third", own=True)) == ["rate-16-own", "rate-64-own"]


def test_longer_runs_at_high_rates_are_counted_by_themselves(catalog, arms):
    more = catalog.model_copy(update={"variants": catalog.variants | {"rate-2": Variant(learning_rate=2, clip=1e9)}})
    before = made(Stability, more, "training_stability", arms)
    short = {arm: before.short_runs(arm, clipped=False).keys() for arm in arms}
    with pytest.raises(Unmeasured, match="there are no longer runs at high rates"):
        before.contrast("dense", "stem-third", "long-blow-ups")
    for arm, ends in (("dense", (np.nan, 5.0)), ("stem-third", (5.0, 5.0))):
        arms[arm].variants["rate-2"] = Ended(ends, 2.0)
    after = made(Stability, more, "training_stability", arms)
    assert {arm: after.short_runs(arm, clipped=False).keys() for arm in arms} == short
    assert after.contrast("dense", "stem-third", "long-blow-ups").differences == pytest.approx([1.0, 0.0])
    assert after.own("dense", "stem-third", "long-blow-ups") is None


def test_a_count_of_spikes_needs_steps_enough(stability, catalog):
    assert "fewer than 1" in stability.untestable("spikes", "spikes-expected")
    scale = stability.inputs.scale
    tokens = scale.training.batch * scale.model.sequence
    long = {"dense": Whole({"loss": np.zeros((1, round(2.09e11 / 3 / tokens) + 1))}, {})}
    assert made(Stability, catalog, "training_stability", long).untestable("spikes", "spikes-expected") is None
