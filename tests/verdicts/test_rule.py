"""The verdict rule on made-up data whose right verdict is known; its error rates are simulated."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from stemrepro.verdicts.contrast import Contrast, of_shares
from stemrepro.verdicts.robustness import OFFICIAL_INIT, OWN_RATES
from stemrepro.verdicts.rule import (
    CONTRADICTED,
    NO_SIZE,
    NOT_TESTED,
    OTHER_SIZE,
    SAME_SIZE,
    SUPPORTED,
    UNDECIDED,
    Evidence,
    adjusted,
    judge,
    size,
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
        (0.05, {}, SUPPORTED),
        (0.05, {"primary": True}, SUPPORTED),
        (0.05, {"paper_effect": 5.0}, SUPPORTED),  # whatever the paper's size
        (0.01, {}, CONTRADICTED),  # real, and shown to be smaller than what counts: absent comes first
        (0.0, {}, CONTRADICTED),
        (-0.01, {}, CONTRADICTED),
        (-0.05, {}, CONTRADICTED),  # opposite
        (0.05, {"failed_precondition": "dense is at chance"}, NOT_TESTED),
    ],
)
def test_known_verdicts(mean, fields, expected):
    assert verdict(around(mean), **fields) == expected


@pytest.mark.parametrize(("mean", "sd", "reason"), [
    (0.05, 0.002, "above 0, adjusted p below 0.0001"), (0.01, 0.002, "absent: the effect lies inside +-0.02, adjusted"),
    (-0.05, 0.002, "opposite: below 0, adjusted p"), (0.021, 0.01, "above 0"),
    (0.01, 0.1, "neither above nor below 0 is shown, adjusted p"),
])  # fmt: skip
def test_reasons_say_what_was_shown(mean, sd, reason):
    assert judge([Evidence("greater", (around(mean, sd),), 0.02)])[0].reason.startswith(reason)


def test_absent_and_equivalent_are_shown_at_95_percent():
    """The 90% interval ends at 0.019, the 95% one beyond 0.02: once that was enough."""
    contrast = around(0.0, sd=0.02 * 0.95 / (stats.t.ppf(0.95, 4) * np.std(SPREAD, ddof=1) / np.sqrt(5)))
    assert contrast.interval(0.10)[1] == pytest.approx(0.019)
    assert contrast.interval(0.05)[1] > 0.02
    assert verdict(contrast) == UNDECIDED
    assert verdict(contrast, kind="equivalent") == UNDECIDED
    narrower = Contrast(contrast.differences * 0.02 / contrast.interval(0.025)[1] * 0.99)  # one of two tests
    assert verdict(narrower, kind="equivalent") == SUPPORTED


def test_a_word_never_says_more_than_the_95_percent_interval():
    generator, seen = np.random.default_rng(7), set()
    for _ in range(300):
        family = [Evidence("greater", (Contrast(generator.normal(mean, 0.02, 5)),), 0.02, primary=primary)
                  for mean in (-0.05, 0.0, 0.03, 0.1) for primary in (True, False)]  # fmt: skip
        for result in judge(family):
            clear = result.ci_low > 0 or result.ci_high < 0
            inside = result.ci_low > -0.02 and result.ci_high < 0.02
            assert result.verdict == UNDECIDED or clear or inside
            assert result.verdict != SUPPORTED or result.ci_low > 0
            seen.add(result.verdict)
    assert len(seen) == 3


def test_a_pair_that_goes_the_other_way_is_corrected_for_the_number_of_pairs():
    """By itself the third pair is opposite; as one of four, each with two ways to contradict, it isn't."""
    opposite = around(-0.03, sd=0.022)
    assert opposite.p(0.0) < 0.05 < 8 * opposite.p(0.0)
    assert verdict(opposite) == CONTRADICTED
    assert verdict(around(0.05), around(0.05), opposite, around(0.05), kind="ordering") == UNDECIDED
    clearly = around(-0.03, sd=0.004)
    assert verdict(around(0.05), around(0.05), clearly, around(0.05), kind="ordering") == CONTRADICTED


def test_noise_is_undecided():
    assert verdict(around(0.01, sd=0.1)) == UNDECIDED


@pytest.mark.parametrize(("seeds", "primary", "enough"), [
    (1, False, False), (2, False, False), (3, False, True), (4, True, False), (5, True, True),
])  # fmt: skip
def test_too_few_seeds(seeds, primary, enough):
    judgement = judge([Evidence("greater", (around(0.5, seeds=seeds),), 0.02, primary=primary)])[0]
    assert (judgement.verdict != UNDECIDED) == enough
    assert (judgement.adjusted_p is not None) == enough
    if not enough:
        assert f"{seeds} seed" in judgement.reason


def test_the_precondition_comes_before_the_number_of_seeds():
    assert verdict(around(0.5, seeds=1), failed_precondition="no") == NOT_TESTED


@pytest.mark.parametrize(("mean", "sd", "expected"), [
    (0.0, 0.002, SUPPORTED), (0.1, 0.002, CONTRADICTED), (-0.1, 0.002, CONTRADICTED), (0.015, 0.02, UNDECIDED),
])  # fmt: skip
def test_equivalence(mean, sd, expected):
    assert verdict(around(mean, sd), kind="equivalent") == expected


@pytest.mark.parametrize(("mean", "sd", "expected"), [
    (-0.1, 0.002, SUPPORTED), (0.0, 0.002, SUPPORTED), (0.1, 0.002, CONTRADICTED), (0.0, 0.1, UNDECIDED),
])  # fmt: skip
def test_not_better(mean, sd, expected):
    assert verdict(around(mean, sd), kind="not-better") == expected


@pytest.mark.parametrize(
    ("means", "expected"),
    [((0.05, 0.04), SUPPORTED), ((0.05, 0.01), CONTRADICTED), ((0.05, -0.05), CONTRADICTED),
     ((0.05, 0.0), CONTRADICTED)],
)  # fmt: skip
def test_ordering_needs_every_pair(means, expected):
    assert verdict(*(around(mean) for mean in means), kind="ordering") == expected


def test_an_ordering_shows_its_weakest_pair():
    judgement = judge([Evidence("ordering", (around(0.05), around(0.04), around(0.30)), 0.02)])[0]
    assert (judgement.verdict, judgement.ours) == (SUPPORTED, pytest.approx(0.04))
    assert (judgement.ci_low, judgement.ci_high) == around(0.04).interval(0.05)


def test_ordering_with_one_noisy_pair_is_undecided():
    assert verdict(around(0.05), around(0.02, sd=0.2), kind="ordering") == UNDECIDED


def test_secondary_claims_are_one_family_with_all_their_tests():
    """Each brings its own p and that of its absence: by another library's procedure over all of them together."""
    generator = np.random.default_rng(8)
    family = [Evidence("greater", (Contrast(generator.normal(mean, 0.02, 4)),), 0.02) for mean in (0, 0.02, 0.05, 0.2)]
    own, other = ([stats.ttest_1samp(e.contrasts[0].differences, 0).pvalue for e in family],
                  [e.contrasts[0].p_inside(0.02) for e in family])  # fmt: skip
    expected = stats.false_discovery_control(own + other, method="bh")
    assert [p for pair in zip(*[iter(expected)] * 4, strict=True) for p in pair] == list(expected)
    assert [pair[0] for pair in adjusted(family)] == pytest.approx(list(expected[:4]))
    assert [pair[1] for pair in adjusted(family)] == pytest.approx(list(expected[4:]))


def test_primary_claims_have_eight_places_and_other_claims_take_none():
    primary = Evidence("greater", (around(0.05, sd=0.03),), 0.02, primary=True)
    others = [Evidence("greater", (around(mean, sd=0.05),), 0.02) for mean in (0.0, 0.0, 0.3)]
    p = primary.contrasts[0].p(0.0)
    assert adjusted([primary, *others])[0][0] == pytest.approx(8 * p)
    assert adjusted([primary, *others])[1:] == adjusted(others)


@pytest.mark.parametrize(("mean", "effect", "comparable", "expected"), [
    (0.05, 0.05, True, SAME_SIZE), (0.05, 0.099, True, SAME_SIZE), (0.05, 0.2, True, OTHER_SIZE),
    (0.05, 0.01, True, OTHER_SIZE), (-0.05, 0.05, True, OTHER_SIZE), (-0.05, -0.05, True, SAME_SIZE),
    (0.05, 0.05, False, NO_SIZE), (0.05, None, True, NO_SIZE),
])  # fmt: skip
def test_a_size_is_the_papers_between_its_half_and_its_double(mean, effect, comparable, expected):
    assert size(Evidence("greater", (around(mean),), 0.02, paper_effect=effect), comparable) == expected


KINDS = ("greater", "equivalent", "not-better", "ordering")
EDGES = {"greater": (0.0, 0.02), "equivalent": (0.02,), "not-better": (0.02,), "ordering": (0.0, 0.02)}
"""Effects at the edge of a null: with the first a claim must not be supported, with the last not contradicted."""


def null_page(generator: np.random.Generator, primary: bool) -> list[tuple[Evidence, float]]:
    """Claims of all kinds with effects at the edge of a null, of 3 and 5 seeds, also of shares in percent."""
    page = []
    for number in range(8 if primary else 24):
        kind = KINDS[number % 4]
        effect, seeds = generator.choice(EDGES[kind]), 5 if primary else generator.choice([3, 5])
        if number % 3:
            scatter = generator.choice([0.002, 0.02])
            pairs = [Contrast(generator.normal(effect, scatter, seeds)) for _ in range(3 if kind == "ordering" else 1)]
            page.append((Evidence(kind, tuple(pairs), 0.02, primary=primary), effect))
        elif kind != "ordering":  # 0.02 stands for 10 points about 50%
            ends = np.log((0.5 + 2.5 * effect) / (0.5 - 2.5 * effect))
            logits = generator.normal(0, 0.3, (2, seeds)) + np.array([[ends], [-ends]])
            shares = 100 * generator.binomial(200, expit(logits)) / 200
            page.append((Evidence(kind, (of_shares(*shares, 200),), 10.0, primary=primary), effect))
    return page


def is_false(evidence: Evidence, effect: float, word: str) -> bool:
    """Tell whether a word is wrong of an effect at the edge of a null."""
    if word in (UNDECIDED, NOT_TESTED):
        return False
    if evidence.kind == "equivalent" or effect == 0.0:
        right = CONTRADICTED  # an effect of 0 is absent
    elif evidence.kind == "not-better":
        return True  # at m itself neither is right
    else:
        right = SUPPORTED
    return word != right


def false_share(primary: bool, trials: int) -> float:
    """Share of pages with a false word, of primary claims; of others the mean share of false ones among words."""
    generator, total = np.random.default_rng(4), 0.0
    for _ in range(trials):
        page = null_page(generator, primary)
        words = [judgement.verdict for judgement in judge(e for e, _ in page)]
        wrong = sum(is_false(*claim, word) for claim, word in zip(page, words, strict=True))
        said = sum(word in (SUPPORTED, CONTRADICTED) for word in words)
        total += bool(wrong) if primary else wrong / max(1, said)
    return total / trials


@pytest.mark.slow
@pytest.mark.parametrize("primary", [True, False])
def test_false_words_on_pages_of_nulls_stay_under_five_percent(primary):
    """Of 500 pages: without a correction 17% of the primary ones would have one, and 11% of other words be false."""
    assert false_share(primary, 500) <= stats.binom.ppf(0.999, 500, 0.05) / 500


def found(effect: float, seeds: int, word: str, trials: int = 300) -> float:
    generator = np.random.default_rng(5)
    return np.mean([verdict(Contrast(generator.normal(effect, 0.02, seeds))) == word for _ in range(trials)])


def test_true_effects_are_found():
    """The rule isn't merely silent: it finds nearly every clear effect, and a null isn't 'absent' for lack of data."""
    assert found(0.2, 5, SUPPORTED) > 0.95
    assert found(0.0, 3, CONTRADICTED) < 0.1


@pytest.mark.parametrize(
    ("computed", "printed", "half", "expected"),
    [(22.2798, 22.8, 0.05, CONTRADICTED), (21.7391, 21.7, 0.05, SUPPORTED), (0.375, 0.37, 0.005, SUPPORTED),
     (7.0, 0.0, 0.5, CONTRADICTED)],
)  # fmt: skip
def test_exact_claims_know_no_chance(computed, printed, half, expected):
    assert verdict(Contrast(np.array([computed])), kind="exact", paper_effect=printed, smallest_effect=half) == expected


@pytest.mark.parametrize(("computed", "reason"), [(0.2, "0.2 is 0 within 1"), (11.0, "11 is not 0 within 1")])
def test_a_number_that_the_paper_lacks_is_not_called_the_papers(computed, reason):
    control = Evidence("exact", (Contrast(np.array([computed])),), 1, expected=0.0)
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
def test_a_sign_that_turns_in_another_setting_is_undecided(setting, words):
    common, other = Contrast(np.array([0.3, 0.31, 0.29, 0.3, 0.3])), Contrast(np.array([-0.1, -0.1, -0.12]))
    judgement = judge([Evidence("greater", (common,), 0.02, robustness={setting: (other,)})])[0]
    assert judgement.verdict == UNDECIDED
    assert judgement.reason == f"the sign turns {words}"
    assert judge([Evidence("greater", (common,), 0.02, robustness={setting: (common,)})])[0].verdict == SUPPORTED
    blocked = Evidence("greater", (common,), 0.02, failed_precondition="no", robustness={setting: (other,)})
    assert judge([blocked])[0].reason == "no"


def test_one_setting_that_turns_is_enough():
    settings = {OWN_RATES: (around(0.05),), OFFICIAL_INIT: (around(-0.05),)}
    judgement = judge([Evidence("greater", (around(0.05),), 0.02, robustness=settings)])[0]
    assert judgement.reason.startswith("the sign turns at the official start")


def test_any_pair_of_an_ordering_turns():
    settings = {OFFICIAL_INIT: (around(0.05), around(-0.05))}
    assert (
        judge([Evidence("ordering", (around(0.05), around(0.04)), 0.02, robustness=settings)])[0].verdict == UNDECIDED
    )


@pytest.mark.parametrize(
    ("kind", "common", "other", "expected"),
    [
        ("equivalent", around(0.001, sd=0.0001), around(-0.001, sd=0.0001), SUPPORTED),  # both are nothing
        ("equivalent", around(0.1), around(-0.1), UNDECIDED),  # both are something, with two signs
        ("equivalent", around(0.1), around(-0.001, sd=0.0001), CONTRADICTED),  # the second has no sign
        ("greater", around(0.05), around(-0.001, sd=0.1), SUPPORTED),  # noise has no sign either
        ("greater", around(0.001, sd=0.1), around(-0.05), UNDECIDED),
        ("not-better", around(-0.05), around(0.001, sd=0.1), SUPPORTED),
        ("not-better", around(0.05), around(-0.05), UNDECIDED),
    ],
)
@pytest.mark.parametrize("setting", [OWN_RATES, OFFICIAL_INIT])
def test_a_sign_speaks_where_it_stands_out_of_its_noise(setting, kind, common, other, expected):
    assert judge([Evidence(kind, (common,), 0.02, robustness={setting: (other,)})])[0].verdict == expected


def test_what_could_not_be_measured_is_undecided_and_takes_no_place():
    null_band = Contrast(np.array([np.nan]))
    lost = Evidence("greater", (null_band,), 0.02, unmeasured="stem-full diverged at step 9")
    alone = judge([Evidence("greater", (around(0.05),), 0.02)])
    first, second = judge([Evidence("greater", (around(0.05),), 0.02), lost])
    assert first == alone[0]
    assert (second.verdict, second.reason) == (UNDECIDED, "stem-full diverged at step 9")
    assert np.isnan(second.ours)


def made_up(rng: np.random.Generator) -> Evidence:
    kind = str(rng.choice(["greater", "equivalent", "not-better", "ordering"]))
    size, seeds = rng.choice([-0.2, -0.02, 0.0, 0.01, 0.05, 0.3]), rng.integers(2, 7)
    pairs = [
        size + rng.choice([0.002, 0.02, 0.1]) * rng.standard_normal(seeds)
        for _ in range(3 if kind == "ordering" else 1)
    ]
    primary, robustness = (bool(rng.random() < share) for share in (0.3, 0.3))
    contrasts = tuple(map(Contrast, pairs))
    return Evidence(
        kind, contrasts, 0.02, primary=primary,
        failed_precondition="at chance" if rng.random() < 0.05 else None,
        unmeasured="diverged" if rng.random() < 0.05 else None,
        robustness={OWN_RATES: tuple(c.reversed() for c in contrasts)} if robustness else {},
    )  # fmt: skip


def by_intervals(e: Evidence, level: float, other: float) -> str:
    """The rule of docs/verdicts.md by intervals alone, at the levels that the adjusted p stand for."""
    if e.failed_precondition:
        return NOT_TESTED
    null_band = 0.02 if e.kind == "equivalent" else 0.0
    signs = [low > null_band or high < -null_band for low, high in (c.interval(0.05) for c in e.contrasts)]
    if e.unmeasured or e.seeds < (5 if e.primary else 3) or (e.robustness and any(signs)):  # there it is the opposite
        return UNDECIDED
    (low, high), (inner, outer) = e.contrasts[0].interval(level), e.contrasts[0].interval(other)
    if e.kind == "equivalent":
        outside = inner > 0.02 or outer < -0.02
        return SUPPORTED if low > -0.02 and high < 0.02 else CONTRADICTED if outside else UNDECIDED
    if e.kind == "not-better":
        return SUPPORTED if high < 0.02 else CONTRADICTED if low > 0.02 else UNDECIDED
    if e.kind == "ordering":
        pairs = [contrast.interval(other / 6) for contrast in e.contrasts]
        if any((low > -0.02 and high < 0.02) or high < 0 for low, high in pairs):
            return CONTRADICTED
        return SUPPORTED if all(c.interval(level)[0] > 0 for c in e.contrasts) else UNDECIDED
    if inner > -0.02 and outer < 0.02:
        return CONTRADICTED
    return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else UNDECIDED


def level(p: float | None, changed: float | None) -> float:
    """The level at which an interval says what an adjusted p below 5% says."""
    return 0.05 if not p or changed is None else 0.05 * p / changed


def test_steps_end_where_the_rule_does_and_nowhere_before():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(400):
        family = [made_up(rng) for _ in range(4)]
        for evidence, result in zip(family, judge(family), strict=True):
            levels = level(result.p, result.adjusted_p), level(result.other_p, result.adjusted_other_p)
            # An adjusted p of 1 stands for every p that is as large, so that its level is no single one.
            if 1.0 not in (result.adjusted_p, result.adjusted_other_p):
                assert result.verdict == by_intervals(evidence, *levels)
            assert [bool(step.verdict) for step in result.steps] == [False] * (len(result.steps) - 1) + [True]
            assert result.reason
            seen.add((evidence.kind, result.verdict))
    assert len(seen) == 16


def test_answers_turn_with_the_sign():
    up = Contrast(np.array([0.049, 0.05, 0.051, 0.05]))
    forth, back = (
        [(step.question, step.answer) for step in judge([Evidence("greater", (contrast,), 0.02)])[0].steps][3:]
        for contrast in (up, up.reversed())
    )
    absent = ("Is it shown to lie inside +-0.02?", False)
    assert forth == [absent, ("Is it shown to be above 0?", True)]
    assert back == [absent, ("Is it shown to be above 0?", False), ("Is it shown to be below 0?", True)]


def test_numbers_of_a_step_are_the_interval():
    down = Contrast(np.array([-0.049, -0.05, -0.051, -0.05]))
    low, high = down.interval(0.05)
    step = judge([Evidence("greater", (down,), 0.02)])[0].steps[-1]
    assert step.numbers.endswith(f"95% interval {low:+.4f} to {high:+.4f}")
    assert step.numbers.count("-") == 2
