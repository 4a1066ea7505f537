"""The verdict rule on made-up data whose right verdict is known.

Its intervals are compared with other libraries' and its error rates are simulated.
"""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import OFFICIAL_INIT, OWN_RATES
from stemrepro.verdicts.rule import (
    CONTRADICTED,
    DIRECTION,
    INCONCLUSIVE,
    NOT_TESTABLE,
    REPRODUCED,
    Evidence,
    judge,
    levels,
)

SPREAD = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def around(mean: float, sd: float = 0.002, seeds: int = 5) -> Contrast:
    """Differences with exactly this mean and about this spread."""
    offsets = np.resize(SPREAD, seeds)
    return Contrast(mean + sd * (offsets - offsets.mean()))


def verdict(*contrasts: Contrast, kind: str = "greater", **fields: object) -> str:
    fields = {"smallest_effect": 0.02} | fields
    return judge([Evidence(kind, contrasts, **fields)])[0].verdict


@pytest.mark.parametrize(
    ("mean", "fields", "expected"),
    [
        (0.05, {"control": True}, REPRODUCED),
        (0.05, {"control": True, "primary": True}, REPRODUCED),
        (0.05, {"paper_effect": 0.05}, DIRECTION),  # whatever its size
        (0.05, {}, DIRECTION),  # no paper number
        (0.01, {"control": True}, DIRECTION),  # real, smaller than what counts
        (0.0, {}, CONTRADICTED),  # absent
        (-0.05, {}, CONTRADICTED),  # opposite
        (0.05, {"failed_precondition": "dense is at chance"}, NOT_TESTABLE),
    ],
)
def test_known_verdicts(mean, fields, expected):
    assert verdict(around(mean), **fields) == expected


def test_absent_and_equivalent_are_shown_at_90_percent():
    """The 90% interval ends at 0.019, the 95% one beyond 0.02."""
    contrast = around(0.0, sd=0.02 * 0.95 / (stats.t.ppf(0.95, 4) * np.std(SPREAD, ddof=1) / np.sqrt(5)))
    assert contrast.interval(0.10)[1] == pytest.approx(0.019)
    assert contrast.interval(0.05)[1] > 0.02
    assert verdict(contrast) == CONTRADICTED
    assert verdict(contrast, kind="equivalent") == REPRODUCED


def test_a_pair_that_goes_the_other_way_is_corrected_for_the_number_of_pairs():
    """By itself the third pair is opposite at 90%; as one of four it isn't."""
    opposite = around(-0.03, sd=0.036)
    assert opposite.interval(0.10)[1] < 0 < opposite.interval(0.10 / 4)[1]
    assert verdict(opposite) == CONTRADICTED
    assert verdict(around(0.05), around(0.05), opposite, around(0.05), kind="ordering") == INCONCLUSIVE
    clearly = around(-0.03, sd=0.004)
    assert verdict(around(0.05), around(0.05), clearly, around(0.05), kind="ordering") == CONTRADICTED


def test_noise_is_inconclusive():
    assert verdict(around(0.01, sd=0.1)) == INCONCLUSIVE


@pytest.mark.parametrize(("seeds", "primary", "enough"), [
    (1, False, False), (2, False, False), (3, False, True), (4, True, False), (5, True, True),
])  # fmt: skip
def test_too_few_seeds(seeds, primary, enough):
    judgement = judge([Evidence("greater", (around(0.5, seeds=seeds),), 0.02, primary=primary)])[0]
    assert (judgement.verdict != INCONCLUSIVE) == enough
    if not enough:
        assert f"{seeds} seed" in judgement.reason


def test_the_precondition_comes_before_the_number_of_seeds():
    assert verdict(around(0.5, seeds=1), failed_precondition="no") == NOT_TESTABLE


@pytest.mark.parametrize(("mean", "sd", "expected"), [
    (0.0, 0.002, REPRODUCED), (0.1, 0.002, CONTRADICTED), (-0.1, 0.002, CONTRADICTED), (0.015, 0.02, INCONCLUSIVE),
])  # fmt: skip
def test_equivalence(mean, sd, expected):
    assert verdict(around(mean, sd), kind="equivalent") == expected


@pytest.mark.parametrize(("mean", "expected"), [(-0.1, REPRODUCED), (0.0, REPRODUCED), (0.1, CONTRADICTED)])
def test_not_better(mean, expected):
    assert verdict(around(mean), kind="not-better") == expected


@pytest.mark.parametrize(
    ("means", "expected"),
    [((0.05, 0.04), REPRODUCED), ((0.05, 0.01), DIRECTION), ((0.05, -0.05), CONTRADICTED), ((0.05, 0.0), CONTRADICTED)],
)
def test_ordering_needs_every_pair(means, expected):
    assert verdict(*(around(mean) for mean in means), kind="ordering") == expected


def test_an_ordering_rests_on_its_weakest_pair():
    judgement = judge([Evidence("ordering", (around(0.05), around(0.04), around(0.30)), 0.02)])[0]
    low = around(0.04).interval(1 - judgement.level)[0]
    assert (judgement.verdict, judgement.ours) == (REPRODUCED, pytest.approx(0.04))
    assert f"the weakest: lower bound {low:.3f} exceeds 0.02" in judgement.reason


def test_ordering_with_one_noisy_pair_is_inconclusive():
    assert verdict(around(0.05), around(0.02, sd=0.2), kind="ordering") == INCONCLUSIVE


def test_interval_and_p_agree_with_scipy_and_statsmodels():
    values = np.random.default_rng(0).normal(0.03, 0.02, 7)
    contrast = Contrast(values)
    assert contrast.interval(0.05) == pytest.approx(DescrStatsW(values).tconfint_mean(0.05))
    assert contrast.interval(0.10) == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval(0.90))
    assert contrast.p_above(0.0) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_item_error_widens_the_interval_and_satterthwaite_bounds_its_df():
    values = np.array([0.03, 0.04, 0.05, 0.035, 0.045])
    seeds, both = Contrast(values), Contrast(values, item_se=0.01, item_df=19)
    assert both.error[0] == pytest.approx(np.hypot(seeds.seed_se, 0.01))
    assert 4 < both.error[1] < 4 + 19
    assert both.interval(0.05)[0] < seeds.interval(0.05)[0]


def test_equal_item_and_seed_errors_give_the_welch_df():
    values = np.random.default_rng(1).normal(size=(2, 8))
    values[1] = values[1] - values[1].mean()
    first, second = values
    welch = stats.ttest_ind(first, second, equal_var=False)
    assert Contrast(first, float(stats.sem(second)), 7).error[1] == pytest.approx(welch.df)


def positive_rate(
    effects: list[float], primary: bool, wanted: set[str], trials: int, seeds: int, fields: dict
) -> float:
    """Share of data sets in which any claim gets a verdict among `wanted`."""
    generator = np.random.default_rng(4)
    hits = 0
    for _ in range(trials):
        evidence = [
            Evidence("greater", (Contrast(generator.normal(effect, 0.02, seeds)),), 0.02, primary=primary, **fields)
            for effect in effects
        ]
        hits += any(judgement.verdict in wanted for judgement in judge(evidence))
    return hits / trials


def ceiling(level: float, trials: int) -> float:
    """The level plus what chance allows in so many trials (99.9%)."""
    return stats.binom.ppf(0.999, trials, level) / trials


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "count"), [(5, 1), (5, 8), (8, 8)])
def test_false_positives_of_primary_claims_stay_under_five_percent(seeds, count):
    rate = positive_rate([0.0] * count, True, {REPRODUCED, DIRECTION}, 1000, seeds, {})
    assert rate <= ceiling(0.05, 1000)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "count"), [(3, 1), (5, 6)])
def test_false_positives_of_secondary_claims_stay_under_ten_percent(seeds, count):
    rate = positive_rate([0.0] * count, False, {REPRODUCED, DIRECTION}, 1000, seeds, {})
    assert rate <= ceiling(0.10, 1000)


@pytest.mark.slow
def test_effects_that_do_not_count_are_rarely_reproduced():
    """Every true effect equals the smallest that counts, where a careless rule would call one in fifteen reproduced."""
    rate = positive_rate([0.02] * 8, True, {REPRODUCED}, 3000, 8, {"control": True})
    assert rate <= ceiling(0.05, 3000)


def test_effects_that_clear_zero_easily_buy_no_laxer_level_against_m():
    """One claim far above m, seven just above it: the levels of the test against m are those of the p against m."""
    many = [Evidence("greater", (around(mean, sd=0.004),), 0.02, control=True) for mean in (0.5, *[0.0235] * 7)]
    assert [judgement.verdict for judgement in judge(many)] == [REPRODUCED] * 8
    alone = [Evidence("greater", (around(mean, sd=0.004),), 0.02, control=True) for mean in (0.5, 0.0235, *[0.019] * 6)]
    assert [judgement.verdict for judgement in judge(alone)] == [REPRODUCED, DIRECTION, *[DIRECTION] * 6]


def test_true_effects_are_found():
    """The rule isn't merely silent: it finds nearly every clear effect, and a null isn't 'absent' for lack of data."""
    assert positive_rate([0.2], True, {DIRECTION}, 300, 5, {}) > 0.95
    assert positive_rate([0.0], False, {CONTRADICTED}, 300, 3, {}) < 0.5


@pytest.mark.parametrize(
    ("computed", "printed", "half", "expected"),
    [(22.2798, 22.8, 0.05, CONTRADICTED), (21.7391, 21.7, 0.05, REPRODUCED), (0.375, 0.37, 0.005, REPRODUCED),
     (7.0, 0.0, 0.5, CONTRADICTED)],
)  # fmt: skip
def test_exact_claims_know_no_chance(computed, printed, half, expected):
    assert verdict(Contrast(np.array([computed])), kind="exact", paper_effect=printed, smallest_effect=half) == expected


@pytest.mark.parametrize(("computed", "reason"), [(0.2, "0.2 is 0 within 1"), (11.0, "11 is not 0 within 1")])
def test_a_number_that_the_paper_lacks_is_not_called_the_papers(computed, reason):
    control = Evidence("exact", (Contrast(np.array([computed])),), 1, control=True, expected=0.0)
    assert judge([control])[0].reason == reason


def test_what_roundings_leave_of_a_zero_is_a_zero():
    (judgement,) = judge([Evidence("exact", (Contrast(np.array([-6.66134e-14])),), 1.0, paper_effect=0.0)])
    assert judgement.reason == "0 is the paper's 0 within 1"


def test_exact_claims_take_no_part_in_the_correction_for_many_claims():
    exact = Evidence("exact", (Contrast(np.array([1.0])),), 0.5, paper_effect=1.0)
    alone = judge([Evidence("greater", (around(0.05),), 0.02)])
    together = judge([Evidence("greater", (around(0.05),), 0.02), *[exact] * 30])
    assert together[0] == alone[0]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (OWN_RATES, "at own best rates: +0.300 at the common rate, -0.107 there"),
        (OFFICIAL_INIT, "at the official start of the embeddings: +0.300 at the common start, -0.107 there"),
    ],
)
def test_a_sign_that_turns_in_another_setting_is_inconclusive(setting, words):
    common, other = Contrast(np.array([0.3, 0.31, 0.29, 0.3, 0.3])), Contrast(np.array([-0.1, -0.1, -0.12]))
    judgement = judge([Evidence("greater", (common,), 0.02, robustness={setting: (other,)})])[0]
    assert judgement.verdict == INCONCLUSIVE
    assert judgement.reason == f"the sign turns {words}"
    assert judge([Evidence("greater", (common,), 0.02, robustness={setting: (common,)})])[0].verdict == DIRECTION
    blocked = Evidence("greater", (common,), 0.02, failed_precondition="no", robustness={setting: (other,)})
    assert judge([blocked])[0].reason == "no"


def test_one_setting_that_turns_is_enough():
    settings = {OWN_RATES: (around(0.05),), OFFICIAL_INIT: (around(-0.05),)}
    judgement = judge([Evidence("greater", (around(0.05),), 0.02, robustness=settings)])[0]
    assert judgement.reason.startswith("the sign turns at the official start")


def test_any_pair_of_an_ordering_turns():
    settings = {OFFICIAL_INIT: (around(0.05), around(-0.05))}
    assert (
        judge([Evidence("ordering", (around(0.05), around(0.04)), 0.02, robustness=settings)])[0].verdict
        == INCONCLUSIVE
    )


@pytest.mark.parametrize(
    ("kind", "common", "other", "expected"),
    [
        ("equivalent", around(0.001, sd=0.0001), around(-0.001, sd=0.0001), REPRODUCED),  # both are nothing
        ("equivalent", around(0.1), around(-0.1), INCONCLUSIVE),  # both are something, with two signs
        ("equivalent", around(0.1), around(-0.001, sd=0.0001), CONTRADICTED),  # the second has no sign
        ("greater", around(0.05), around(-0.001, sd=0.1), DIRECTION),  # noise has no sign either
        ("greater", around(0.001, sd=0.1), around(-0.05), INCONCLUSIVE),
        ("not-better", around(-0.05), around(0.001, sd=0.1), REPRODUCED),
        ("not-better", around(0.05), around(-0.05), INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("setting", [OWN_RATES, OFFICIAL_INIT])
def test_a_sign_speaks_where_it_stands_out_of_its_noise(setting, kind, common, other, expected):
    assert judge([Evidence(kind, (common,), 0.02, robustness={setting: (other,)})])[0].verdict == expected


def test_what_could_not_be_measured_is_inconclusive_and_takes_no_place():
    null_band = Contrast(np.array([np.nan]))
    lost = Evidence("greater", (null_band,), 0.02, unmeasured="stem-full diverged at step 9")
    alone = judge([Evidence("greater", (around(0.05),), 0.02)])
    first, second = judge([Evidence("greater", (around(0.05),), 0.02), lost])
    assert first == alone[0]
    assert (second.verdict, second.reason) == (INCONCLUSIVE, "stem-full diverged at step 9")
    assert np.isnan(second.ours)


@pytest.mark.parametrize(
    ("mean", "sd", "expected"),
    [(0.05, 0.002, REPRODUCED), (0.01, 0.002, DIRECTION), (-0.05, 0.002, CONTRADICTED), (0.0, 0.002, CONTRADICTED),
     (0.05, 0.2, INCONCLUSIVE)],
)  # fmt: skip
def test_a_control_needs_no_size_of_the_paper(mean, sd, expected):
    assert verdict(around(mean, sd), control=True) == expected


def test_reasons_of_direction_only():
    def reason(contrast, **fields):
        return judge([Evidence("greater", (contrast,), 0.02, **fields)])[0].reason

    assert "it is smaller than what counts, 0.02" in reason(around(0.01))
    assert "the effect is not shown to exceed 0.02" in reason(around(0.021, sd=0.005))
    assert "the paper gives no size to compare with" in reason(around(0.05))
    assert "the paper's size can't be expected at this scale" in reason(around(0.05), paper_effect=0.05)


def made_up(rng: np.random.Generator) -> Evidence:
    kind = str(rng.choice(["greater", "equivalent", "not-better", "ordering"]))
    size, seeds = rng.choice([-0.2, -0.02, 0.0, 0.01, 0.05, 0.3]), rng.integers(2, 7)
    pairs = [
        size + rng.choice([0.002, 0.02, 0.1]) * rng.standard_normal(seeds)
        for _ in range(3 if kind == "ordering" else 1)
    ]
    control, primary, robustness = (bool(rng.random() < share) for share in (0.3, 0.3, 0.3))
    contrasts = tuple(map(Contrast, pairs))
    return Evidence(
        kind, contrasts, 0.02, control=control, primary=primary,
        paper_effect=None if control else rng.choice([0.01, 0.05, 0.2, 2]),
        failed_precondition="at chance" if rng.random() < 0.05 else None,
        unmeasured="diverged" if rng.random() < 0.05 else None,
        robustness={OWN_RATES: tuple(c.reversed() for c in contrasts)} if robustness else {},
    )  # fmt: skip


def in_one_go(e: Evidence, zero: float, above: float) -> str:
    """The rule of docs/verdicts.md as it is told there, without steps."""
    if e.failed_precondition:
        return NOT_TESTABLE
    null_band = 0.02 if e.kind == "equivalent" else 0.0
    signs = [low > null_band or high < -null_band for low, high in (c.interval(0.05) for c in e.contrasts)]
    if e.unmeasured or e.seeds < (5 if e.primary else 3) or (e.robustness and any(signs)):  # there it is the opposite
        return INCONCLUSIVE
    bounds = {level: [c.interval(level) for c in e.contrasts] for level in (zero, above, 0.10)}
    inside = all(low > -0.02 and high < 0.02 for low, high in bounds[0.10])
    (low, high), (strict, _) = bounds[zero][0], bounds[above][0]
    if e.kind == "equivalent":
        return REPRODUCED if inside else CONTRADICTED if low > 0.02 or high < -0.02 else INCONCLUSIVE
    if e.kind == "not-better":
        return REPRODUCED if high < 0.02 else CONTRADICTED if low > 0.02 else INCONCLUSIVE
    if e.kind == "ordering":
        for contrast in e.contrasts:
            (low, high), (inner, outer) = contrast.interval(zero / 3), contrast.interval(0.10)
            if low <= 0 and (high < 0 or (contrast.interval(above / 3)[0] <= 0.02 and inner > -0.02 and outer < 0.02)):
                return CONTRADICTED
        if all(low > 0 or strict > 0.02 for (low, _), (strict, _) in zip(bounds[zero], bounds[above], strict=True)):
            return REPRODUCED if all(low > 0.02 for low, _ in bounds[above]) else DIRECTION
        return INCONCLUSIVE
    if strict > 0.02 and e.control:
        return REPRODUCED
    return DIRECTION if low > 0 else CONTRADICTED if high < 0 or inside else INCONCLUSIVE


def test_steps_end_where_the_rule_does_and_nowhere_before():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(400):
        family = [made_up(rng) for _ in range(4)]
        results = zip(family, judge(family), levels(family, "zero"), levels(family, "m"), strict=True)
        for evidence, result, zero, above in results:
            assert result.verdict == in_one_go(evidence, zero, above)
            assert [bool(step.verdict) for step in result.steps] == [False] * (len(result.steps) - 1) + [True]
            assert result.reason
            seen.add((evidence.kind, result.verdict))
    assert len(seen) == 18  # "not better" and equivalence know no direction


def test_answers_turn_with_the_sign():
    up = Contrast(np.array([0.049, 0.05, 0.051, 0.05]))
    forth, back = (
        [(step.question, step.answer) for step in judge([Evidence("greater", (contrast,), 0.02)])[0].steps][3:]
        for contrast in (up, up.reversed())
    )
    assert forth == [
        ("Does the lower bound exceed 0.02?", True),
        ("Does the lower bound exceed 0?", True),
    ]
    assert back == [
        ("Does the lower bound exceed 0.02?", False),
        ("Does the lower bound exceed 0?", False),
        ("Is the upper bound below 0?", True),
    ]


def test_numbers_of_a_step_are_the_interval():
    down = Contrast(np.array([-0.049, -0.05, -0.051, -0.05]))
    low, high = down.interval(0.10)
    step = judge([Evidence("greater", (down,), 0.02)])[0].steps[-1]
    assert step.numbers == f"{low:+.4f} to {high:+.4f} (90%)"
    assert step.numbers.count("-") == 2
