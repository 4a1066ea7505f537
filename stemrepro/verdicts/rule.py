"""One rule from differences to a word, the same for every claim (docs/method.md).

A difference is signed so that the claim makes it positive. m is the smallest effect that counts. The 99% t interval
over the seeds decides, by the first line that fits:

1. not tested: nothing was attempted, or a precondition fails, judged without the differences;
2. undecided: a run diverged, the contrast has no value, or fewer than 3 seeds;
3. of an effect above 0 (`greater`): contradicted inside +-m, supported above 0, contradicted below 0;
4. of an equivalence: supported inside +-m, contradicted outside;
5. of "not better": supported below m, contradicted above;
6. undecided: the rest.

Inside +-m comes first: an effect that is real and too small to count doesn't count. By hand, of paired differences d
that are no shares (of those `of_shares` in effect.py):

    low, high = scipy.stats.t.interval(0.99, len(d) - 1, numpy.mean(d), scipy.stats.sem(d))

Exact claims (arithmetic, closed forms) know no chance: supported where the computed number is the printed one within m,
mostly half its last digit, else contradicted.
"""

from dataclasses import dataclass

from stemrepro.verdicts.effect import Effect

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_TESTED = "not tested"
VERDICTS = (SUPPORTED, CONTRADICTED, UNDECIDED, NOT_TESTED)
NOT_ATTEMPTED, CONFOUNDED = "not attempted", "confounded"
TOO_SMALL, TOO_SHORT, TOO_EASY = "model too small", "runs too short", "task too easy"
UNTESTED = (NOT_ATTEMPTED, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED)
"""Why claims aren't tested: nothing was run, dense can't do the task, training is too short to show it, dense leaves no
room for a lead, or something else than the claim's contrast differs too."""
SAME_SIZE, OTHER_SIZE, NO_SIZE = "the paper's size", "another size", "can't be compared"
SIZES = (SAME_SIZE, OTHER_SIZE, NO_SIZE)
"""What is said of the size of a result of the paper's; no verdict depends on it."""
DECIDES, PRINTED = 0.01, 0.05
"""Levels of the interval that decides and of the one that is printed."""
LEAST_SEEDS = 3


@dataclass(frozen=True)
class Evidence:
    """What the runs say about one claim, before the rule is applied.

    Attributes:
        kind: greater, equivalent, not-better or exact.
        effect: of the arms; of an exact claim its one difference is the computed number.
        smallest_effect: m.
        paper_effect: the paper's number, or None.
        expected: the number of an exact claim that the paper doesn't have.
        failed_precondition: why the claim can't be tested here, or None; judged without the effect.
        untested: the kind of that reason, one of UNTESTED; "" where it can be tested.
        asked: what has to hold for the claim to be tested, in words.
        unmeasured: why the effect is NaN, or None.
        own_settings: whether each arm is at its own studied settings, not at the common ones.
    """

    kind: str
    effect: Effect
    smallest_effect: float
    paper_effect: float | None = None
    expected: float | None = None
    failed_precondition: str | None = None
    untested: str = ""
    asked: str = ""
    unmeasured: str | None = None
    own_settings: bool = False


@dataclass(frozen=True)
class Step:
    """A question of the rule with its answer, what the answer rests on, and the verdict that ends it there, or ""."""

    question: str
    answer: bool
    numbers: str
    verdict: str = ""
    reason: str = ""


def in_words(effect: Effect) -> str:
    """Return an effect's deciding interval in words."""
    low, high = effect.interval(DECIDES)
    return f"{low:+.4f} to {high:+.4f} ({1 - DECIDES:.0%})"


def steps(e: Evidence) -> list[Step]:
    """Return the questions of one claim, up to the one that ends in its verdict."""
    if e.failed_precondition:
        reason = e.failed_precondition
        return [Step("Can it be tested here?", False, reason, NOT_TESTED, reason)]
    taken = [Step("Can it be tested here?", True, e.asked or "nothing is asked first")]
    if e.kind == "exact" and not e.unmeasured:
        return [*taken, _of_exact(e)]
    seeds = e.effect.seeds
    lost = e.unmeasured or (f"{seeds} seed(s); a claim needs {LEAST_SEEDS}" if seeds < LEAST_SEEDS else "")
    question = "Is it measured, by enough seeds?"
    if lost:
        return [*taken, Step(question, False, lost, UNDECIDED, lost)]
    few = "; three pairs need an effect of 9.9 standard errors" if seeds == LEAST_SEEDS and e.effect.paired else ""
    taken.append(Step(question, True, f"{seeds} seeds{few}"))
    numbers, m = in_words(e.effect), f"{e.smallest_effect:g}"
    for place, verdict in RULE[e.kind].items():
        shown, words = PLACES[place](*e.effect.interval(DECIDES), e.smallest_effect), place.replace("m", m)
        question = f"Does the 99% interval lie {words}?"
        if shown:
            return [*taken, Step(question, True, numbers, verdict, f"{words}: {numbers}")]
        taken.append(Step(question, False, numbers))
    others = " nor ".join(place.replace("m", m) for place in RULE[e.kind])
    return [*taken[:-1], Step(question, False, numbers, UNDECIDED, f"neither {others}: {numbers}")]


PLACES = {
    "inside +-m": lambda low, high, m: -m < low and high < m,
    "outside +-m": lambda low, high, m: high < -m or m < low,
    "above 0": lambda low, high, m: low > 0,
    "below 0": lambda low, high, m: high < 0,
    "above m": lambda low, high, m: low > m,
    "below m": lambda low, high, m: high < m,
}
"""Where an interval may lie."""
RULE = {
    "greater": {"inside +-m": CONTRADICTED, "above 0": SUPPORTED, "below 0": CONTRADICTED},
    "equivalent": {"inside +-m": SUPPORTED, "outside +-m": CONTRADICTED},
    "not-better": {"below m": SUPPORTED, "above m": CONTRADICTED},
}
"""What is asked of each kind of claim, in this order, and the verdict where it is so."""


def _of_exact(e: Evidence) -> Step:
    computed, half = e.effect.mean, e.smallest_effect
    printed = e.paper_effect if e.expected is None else e.expected
    if printed is None:
        raise ValueError("a claim of kind 'exact' says no value")
    equal = abs(computed - printed) <= half + 1e-9
    text = f"{round(computed, 9) + 0.0:.6g}"  # a 0 with rounding errors is written as 0
    whose = "the paper's " if e.expected is None else ""
    why = f"{text} is {'' if equal else 'not '}{whose}{printed:g} within {half:g}"
    question = "Is the number the paper's?" if e.expected is None else "Is the number the claim's?"
    return Step(question, equal, why, SUPPORTED if equal else CONTRADICTED, why)


def size(e: Evidence, comparable: bool) -> str:
    """Return what is said of an effect's size next to the paper's, E: its own where the 95% interval meets E/2 to 2E.

    Args:
        e: of a claim about an effect.
        comparable: whether metric, tokens per parameter and regime are the paper's.
    """
    if not comparable or e.paper_effect is None:
        return NO_SIZE
    low, high = e.effect.interval(PRINTED)
    least, most = sorted((e.paper_effect / 2, 2 * e.paper_effect))
    return SAME_SIZE if low <= most and high >= least else OTHER_SIZE
