import re

import numpy as np
import pytest
from scipy import stats

from stemrepro.config.recipe import VariantRequest
from stemrepro.config.scale import TunedSettings, Variant
from stemrepro.measures import stability
from stemrepro.measures.stability import learning_rate_limit, rate_sensitivity, short_runs, spike_steps
from stemrepro.report.evidence import judged
from stemrepro.verdicts.effect import Unmeasured
from stemrepro.verdicts.rule import NOT_TESTED, TOO_SHORT
from tests.made_up import made, write_arms


def falling(steps=400, seed=0):
    noise = np.random.default_rng(seed).normal(0, 0.05, steps)
    return 4 + 3 * np.exp(-np.arange(steps) / 100) + noise


def test_spikes_are_found_and_neighbours_are_one():
    loss = falling()
    loss[[150, 151, 152, 300]] += 2.0
    assert spike_steps(loss).tolist() == [150, 300]
    loss[10] += 5
    assert spike_steps(loss).tolist() == [150, 300]  # the start doesn't count


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
    assert spike_steps(loss).tolist() == expected
    assert stability.rate(loss[None]) == pytest.approx(1000 * len(expected) / max(1, steps - max(50, steps // 10)))
    assert (len(expected) > 3) == (steps > 51)


def test_spikes_of_hard_batches_coincide_in_runs_of_the_same_seed():
    first = np.stack([falling(seed=0), falling(seed=1)])
    second = np.stack([falling(seed=2), falling(seed=3)])
    first[0, 150] += 3
    first[0, 300] += 3
    second[0, 151] += 3
    assert stability.coincidence(first, second) == (0.5, 0.0)
    assert np.isnan(stability.coincidence(np.stack([falling()]), second)).all()


class Ended:
    """Runs of two seeds that start at a loss and end at the given ones."""

    def __init__(self, ends, learning_rate, start=7.0):
        loss = np.tile(np.array(ends)[:, None], (1, 20))
        loss[:, 0] = start
        self.steps = {"loss": loss}
        self.summary = {"learning_rate": learning_rate, "training_entropy": 6.0}


def test_the_limit_is_where_the_end_crosses_token_frequencies():
    arm = [Ended((6.5, 7.0), 16.0), Ended((5.5, 6.5), 4.0), Ended((5.5, 7.0), 8.0)]
    assert stability.rate_limit(arm, 1.0) == pytest.approx(
        [3.5, 2.0]
    )  # half way between 8 and 16; at the first rate already
    arm = [Ended((5.5, 5.5), 4.0), Ended((5.5, np.nan), 8.0)]
    assert stability.rate_limit(arm, 1.0) == pytest.approx([4.0, 3.0])  # never: one doubling on; NaN: at that rate


def test_sensitivity_is_the_mean_over_log_rates_less_the_best():
    """Rates 1, 2 and 8 in any order: their losses count for half, one and a half and one of three doublings."""
    arm = [Ended((5.0, 6.0), 8.0), Ended((4.0, 5.0), 1.0), Ended((3.0, 6.5), 2.0)]
    first = (0.5 * (4 + 3) * 1 + 0.5 * (3 + 5) * 2) / 3 - 3
    second = (0.5 * (5 + 6.5) * 1 + 0.5 * (6.5 + 6) * 2) / 3 - 5
    assert stability.sensitivity(arm) == pytest.approx([first, second])


WHOLE = {"loss": np.stack([falling(seed=0), falling(seed=1)]), "norm": np.stack([falling(seed=0), falling(seed=1)])}
BEST = {"dense": TunedSettings(learning_rate=1), "stem-full": TunedSettings(learning_rate=1, table_rate_factor=8)}
RUNS = {
    "dense@rate-16": (5.0, 5.0), "dense@rate-64": (7.0, 7.0),
    "stem-third@rate-16": (5.0, 5.0), "stem-third@rate-64": (7.0, 7.0),
    "stem-third@rate-16-own": (7.0, 7.0), "stem-third@rate-64-own": (7.0, 7.0),
}  # fmt: skip
"""Ends of the short runs of two seeds; STEM bears less at its own rate."""
PAIR = ("dense", "stem-third")
AT_COMMON = {"stem-third@rate-16-own": None, "stem-third@rate-64-own": None}
"""Short runs of STEM that a recipe then lacks."""


def spiking(loss=(), norm=()):
    """Whole runs of two seeds with a spike at step 200 of the loss, or of the norm, of some of them."""
    series = {name: of.copy() for name, of in WHOLE.items()}
    for name, seeds in (("loss", loss), ("norm", norm)):
        series[name][list(seeds), 200] += 3
    return series


@pytest.fixture
def build(catalog, tmp_path):
    """Scores of two arms: dense spikes once in the loss of its first seed, STEM in the gradient norm of both.

    `runs` are ends of further short runs, None of one that the recipe doesn't have; `variants` are other ones.
    """

    def build(runs=None, variants=None):
        ends = {name: at for name, at in (RUNS | (runs or {})).items() if at is not None}
        whole = {"loss": WHOLE["loss"][:1], "norm": WHOLE["norm"][:1]}
        arms = {"dense": spiking(loss=[0]), "stem-third": spiking(norm=[0, 1]), "stem-third@own-rate": whole}
        tables = {address: {"series": series} for address, series in arms.items()}
        named = catalog.variants | (variants or {})
        for address, at in ends.items():
            run = Ended(at, float(named[address.partition("@")[2]].learning_rate))
            series = run.steps | {"norm": run.steps["loss"]}
            tables[address] = {"series": series, **run.summary}
        write_arms(tmp_path, {name: {"prose": [1.0] * len(of["series"]["loss"]), **of} for name, of in tables.items()})
        wanted = {}
        for address in (*ends, "stem-third@own-rate"):
            arm, _, variant = address.partition("@")
            wanted.setdefault(variant, []).append(arm)
        requests = {name: VariantRequest(arms=tuple(arms)) for name, arms in wanted.items()}
        recipe = catalog.recipes["training_stability"].model_copy(update={"variants": requests})
        more = catalog.model_copy(update={"variants": named, "recipes": {"training_stability": recipe}})
        return made(more, "training_stability", tmp_path, PAIR, learning_rate=1.0, tuned=BEST)

    return build


def test_contrasts_of_whole_runs(build):
    scores = build()
    assert stability.spikes(scores, *PAIR).differences == pytest.approx([1000 / 350, 0])
    assert stability.norm_spikes(scores, *PAIR).differences == pytest.approx([-1000 / 350] * 2)
    assert stability.spikes(scores, *PAIR, own=True).differences == pytest.approx([1000 / 350])  # seeds that both have
    for metric in (stability.spikes, stability.early, rate_sensitivity):
        assert metric(scores, "dense", "dense", own=True) is None


def test_short_runs_are_compared_at_own_rates_where_there_are_some(build):
    scores = build()
    assert learning_rate_limit(scores, *PAIR).differences == pytest.approx([1, 1])  # dense half way to 64, STEM at 16
    assert rate_sensitivity(scores, *PAIR).differences == pytest.approx([1, 1])  # dense 5 and 7, STEM 7 at both
    assert rate_sensitivity(scores, *PAIR, own=True).differences == pytest.approx([1, 1])
    common = build(AT_COMMON)
    for metric in (rate_sensitivity, learning_rate_limit):
        assert metric(common, *PAIR).differences.tolist() == [0, 0]
    assert rate_sensitivity(common, *PAIR, own=True) is None  # STEM's best rate is another than the common one


def test_both_arms_need_the_same_multiples(build):
    """Else the one that was also tried at lower ones would seem more sensitive."""
    scores = build({"stem-third@rate-16-own": None})
    for metric in (rate_sensitivity, learning_rate_limit):
        with pytest.raises(Unmeasured, match="dense and stem-third have no short runs at the same high rates"):
            metric(scores, *PAIR)


def test_where_both_bear_every_rate_neither_has_a_limit(build):
    scores = build(AT_COMMON | {f"{arm}@rate-64": (5.0, 7.0) for arm in PAIR})
    with pytest.raises(Unmeasured, match="in 1 of 2 seeds both arms learn more than token frequencies at every rate"):
        learning_rate_limit(scores, *PAIR)


@pytest.mark.parametrize(
    ("ends", "tokens", "words"),
    [
        ((5.4, 5.5), 0.125, None),  # 0.55 below the entropy of 6
        ((5.55, 5.55), 0.125, "ends 0.45 to 0.45 nats .95%. below token frequencies; 0.5 are needed"),
        ((5.0, 5.0), 0.5, r"no short run of dense at the common rate \(a variant with rate 1 and 0.125 of the tokens"),
        (None, 0.125, "no short run of dense at the common rate"),
    ],
)
def test_dense_must_clear_token_frequencies_in_a_short_run(build, ends, tokens, words):
    reason = stability.dense_clears_unigram(build({"dense@rate-1": ends}, {"rate-1": Variant(tokens=tokens)}))
    assert reason is None if words is None else re.search(words, reason)


def test_a_short_run_differs_from_the_scale_in_rate_and_budget_alone(build):
    """The one at the common rate among them; not those of other budgets, widths and initialisations."""
    eighth, narrow, free = (Variant(tokens=0.125, **more) for more in ({}, {"width": 0.5}, {"official_init": True}))
    variants = {"rate-1": eighth, "narrow": narrow, "free": free, "half": Variant(tokens=0.5)}
    scores = build({f"dense@{name}": (5.0, 5.0) for name in variants}, variants)
    assert list(short_runs(scores, "dense")) == ["rate-16", "rate-64", "rate-1"]
    assert list(short_runs(scores, "stem-third")) == ["rate-16-own", "rate-64-own"]


def test_without_runs_at_other_rates_there_are_none_to_compare(build):
    scores = build(dict.fromkeys(RUNS))
    assert short_runs(scores, "dense") == {}
    assert "and any share of the tokens" in stability.dense_clears_unigram(scores)
    for metric in (rate_sensitivity, learning_rate_limit):
        with pytest.raises(Unmeasured, match="no short runs at the same high rates"):
            metric(scores, *PAIR)


def test_a_count_of_spikes_needs_steps_enough(build, monkeypatch):
    scores = build()
    assert "fewer than 1" in stability.spikes_expected(scores)
    batch = scores.scale.training.batch * scores.scale.model.sequence
    spent = 2 * 400 * batch  # two seeds of 400 steps
    monkeypatch.setattr(stability, "EXPECTED", 0.99 * 3 * spent / 2.09e11)
    assert stability.spikes_expected(scores) is None
    monkeypatch.setattr(stability, "EXPECTED", 1.01 * 3 * spent / 2.09e11)
    assert stability.spikes_expected(scores)


@pytest.mark.parametrize(
    ("warmups", "words"),
    [
        ((0.1, 0.02), None),  # marks are after each tenth of the tokens
        (
            (0.11, 0.02),
            "after 10% of the tokens, and at own settings warm-up takes stem-third's 11.0% and hash-moe's 2.0%",
        ),
        ((0.02, 0.3), "hash-moe's 30.0%"),
        ((0.3, 0.3), None),  # as cold as each other
        ((None, 0.3), None),  # neither is at settings of its own
    ],
)
def test_early_losses_need_arms_that_have_warmed_up(catalog, tmp_path, warmups, words):
    shares = dict(zip(("stem-full", "hash-moe"), warmups, strict=True))
    tuned = {arm: TunedSettings(learning_rate=1, warmup=share) for arm, share in shares.items() if share}
    reason = stability.equally_warm(made(catalog, "training_stability", tmp_path, tuned=tuned))
    assert reason is None if words is None else words in reason


def test_a_claim_whose_condition_fails_is_not_tested_even_where_it_is_not_measured(build):
    """A short run at the common rate lacks, which the condition asks for, and STEM's runs at one rate."""
    scores = build({"stem-third@rate-16-own": None})
    with pytest.raises(Unmeasured):
        rate_sensitivity(scores, *PAIR)
    (one,) = judged(scores, "stem-less-rate-sensitive")
    assert (one.steps[-1].verdict, one.evidence.untested) == (NOT_TESTED, TOO_SHORT)
    assert "no short run of dense at the common rate" in one.steps[-1].reason
