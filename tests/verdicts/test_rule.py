"""The rule against tests of scipy, claims of known effect, and how often it errs."""

import numpy as np
import pytest
from scipy import stats

from stemrepro.verdicts.effect import Effect, unpaired
from stemrepro.verdicts.rule import (
    CONTRADICTED,
    NO_SIZE,
    NOT_TESTED,
    OTHER_SIZE,
    SAME_SIZE,
    SUPPORTED,
    UNDECIDED,
    Evidence,
    size,
    steps,
)

SPREAD = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
M = 0.02


def around(mean, sd=0.002, seeds=5):
    return Effect(mean + sd * np.resize(SPREAD, seeds))


def end(effect, kind="greater", **fields):
    return steps(Evidence(kind, effect, fields.pop("smallest_effect", M), **fields))[-1]


def verdict(effect, kind="greater", **fields):
    return end(effect, kind, **fields).verdict


def by_scipy(kind, values):
    """The word by one-sided tests at half a percent, which 99% intervals are: written apart from the rule."""

    def shown(side, at):
        return stats.ttest_1samp(values, at, alternative=side).pvalue < 0.005

    inside, outside = shown("greater", -M) and shown("less", M), shown("less", -M) or shown("greater", M)
    if kind == "equivalent":
        return SUPPORTED if inside else CONTRADICTED if outside else UNDECIDED
    if kind == "not-better":
        return SUPPORTED if shown("less", M) else CONTRADICTED if shown("greater", M) else UNDECIDED
    if inside or shown("less", 0):
        return CONTRADICTED
    return SUPPORTED if shown("greater", 0) else UNDECIDED


@pytest.mark.parametrize("kind", ["greater", "equivalent", "not-better"])
def test_words_are_those_of_scipys_tests(kind):
    generator, seen = np.random.default_rng(7), set()
    for _ in range(400):
        values = generator.normal(
            generator.choice([-0.1, -M, 0, 0.01, M, 0.05]), generator.choice([0.002, 0.02]), generator.choice([3, 5, 8])
        )
        word = verdict(Effect(values), kind)
        assert word == by_scipy(kind, values)
        seen.add(word)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("kind", "mean", "sd", "word", "reason"),
    [
        ("greater", 0.05, 0.002, SUPPORTED, "above 0: +0.04"),
        ("greater", 0.021, 0.008, SUPPORTED, "above 0"),
        ("greater", 0.01, 0.002, CONTRADICTED, "inside +-0.02: +0.00"),  # real, and too small to count
        ("greater", -0.05, 0.002, CONTRADICTED, "below 0: -0.05"),
        ("greater", 0.01, 0.1, UNDECIDED, "neither inside +-0.02 nor above 0 nor below 0"),
        ("equivalent", 0.0, 0.002, SUPPORTED, "inside +-0.02"),
        ("equivalent", 0.1, 0.002, CONTRADICTED, "outside +-0.02"),
        ("equivalent", -0.1, 0.002, CONTRADICTED, "outside +-0.02"),
        ("equivalent", 0.015, 0.02, UNDECIDED, "neither inside +-0.02 nor outside +-0.02"),
        ("not-better", -0.1, 0.002, SUPPORTED, "below 0.02"),
        ("not-better", 0.0, 0.002, SUPPORTED, "below 0.02"),
        ("not-better", 0.1, 0.002, CONTRADICTED, "above 0.02"),
        ("not-better", 0.0, 0.1, UNDECIDED, "neither below 0.02 nor above 0.02"),
    ],
)
def test_known_effects(kind, mean, sd, word, reason):
    last = end(around(mean, sd), kind)
    assert (last.verdict, last.reason[: len(reason)]) == (word, reason)


def test_three_seeds_need_9_9_standard_errors_and_five_4_6():
    for seeds, least in ((3, 9.925), (5, 4.604)):
        noise = around(0, 1.0, seeds).differences
        noise = (noise - noise.mean()) / stats.sem(noise)
        assert verdict(Effect(noise + least + 0.01), smallest_effect=0.1) == SUPPORTED
        assert verdict(Effect(noise + least - 0.01), smallest_effect=0.1) == UNDECIDED


def test_nothing_but_the_differences_enters():
    """No error between items, and of unpaired arms both spreads."""
    assert verdict(Effect(around(0.05).differences, item_se=5.0)) == SUPPORTED
    first = around(1.05, 0.5).differences
    assert verdict(Effect(first - around(1.0, 0.5).differences)) == SUPPORTED
    assert verdict(unpaired(first, around(1.0, 0.5).differences)) == UNDECIDED


@pytest.mark.parametrize(("seeds", "enough"), [(1, False), (2, False), (3, True), (5, True)])
def test_too_few_seeds(seeds, enough):
    last = end(around(0.5, seeds=seeds))
    assert (last.verdict != UNDECIDED) == enough
    assert enough or last.reason == f"{seeds} seed(s); a claim needs 3"


def test_the_precondition_comes_first_and_then_whether_it_was_measured():
    taken = steps(Evidence("greater", around(0.5, seeds=1), M, failed_precondition="no"))
    assert [(step.verdict, step.reason) for step in taken] == [(NOT_TESTED, "no")]
    lost = Evidence("greater", Effect(np.array([np.nan])), M, unmeasured="stem-full diverged at step 9")
    assert (steps(lost)[-1].verdict, steps(lost)[-1].reason) == (UNDECIDED, "stem-full diverged at step 9")


@pytest.mark.parametrize(("mean", "count"), [(0.01, 3), (0.05, 4), (-0.05, 5), (0.0, 3)])
def test_the_steps_are_the_questions_up_to_the_one_that_decides(mean, count):
    taken = steps(Evidence("greater", around(mean), M, asked="a thing holds"))
    assert len(taken) == count
    assert [bool(step.verdict) for step in taken] == [False] * (count - 1) + [True]
    assert taken[0].numbers == "a thing holds"


@pytest.mark.parametrize(
    ("computed", "printed", "half", "expected"),
    [
        (22.2798, 22.8, 0.05, CONTRADICTED),
        (21.7391, 21.7, 0.05, SUPPORTED),
        (0.375, 0.37, 0.005, SUPPORTED),
        (7.0, 0.0, 0.5, CONTRADICTED),
    ],
)
def test_exact_claims_know_no_chance(computed, printed, half, expected):
    assert verdict(Effect(np.array([computed])), "exact", paper_effect=printed, smallest_effect=half) == expected


@pytest.mark.parametrize(
    ("computed", "fields", "reason"),
    [
        (0.2, {"expected": 0.0}, "0.2 is 0 within 1"),
        (11.0, {"expected": 0.0}, "11 is not 0 within 1"),
        (-6.66134e-14, {"paper_effect": 0.0}, "0 is the paper's 0 within 1"),
    ],
)
def test_whose_number_it_is(computed, fields, reason):
    assert end(Effect(np.array([computed])), "exact", smallest_effect=1, **fields).reason == reason


@pytest.mark.parametrize(
    ("mean", "effect", "comparable", "expected"),
    [
        (0.05, 0.05, True, SAME_SIZE),
        (0.05, 0.099, True, SAME_SIZE),
        (0.05, 0.2, True, OTHER_SIZE),
        (0.05, 0.01, True, OTHER_SIZE),
        (-0.05, 0.05, True, OTHER_SIZE),
        (-0.05, -0.05, True, SAME_SIZE),
        (0.05, 0.1054, True, OTHER_SIZE),  # the 99% interval would meet its half
        (0.05, 0.05, False, NO_SIZE),
        (0.05, None, True, NO_SIZE),
    ],
)
def test_a_size_is_the_papers_between_its_half_and_its_double(mean, effect, comparable, expected):
    assert size(Evidence("greater", around(mean), M, paper_effect=effect), comparable) == expected


def test_of_seventy_claims_without_an_effect_fewer_than_one_gets_a_word():
    """An effect of 0 at a spread that can't show its absence: 1% of words, on either side."""
    generator = np.random.default_rng(4)
    words = [verdict(Effect(generator.normal(0, 0.5, seeds))) for seeds in (3, 5) for _ in range(3000)]
    assert sum(word != UNDECIDED for word in words) <= stats.binom.ppf(0.999, len(words), 0.01)
