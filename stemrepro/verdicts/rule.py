"""One rule from paired differences to a verdict, the same for every claim; docs/verdicts.md says when it was changed.

`differences[s]` is a paired difference for seed s (same batches, same initial backbone), signed so that the claim
makes it positive. `m` is the smallest effect that counts, `E` the paper's effect. In this order:

1. not testable at this scale: a precondition fails, judged without the contrast;
2. inconclusive: fewer than 3 seeds, or fewer than 5 for a primary claim, or a run that diverged;
3. reproduced, of a control's effect alone: the adjusted lower bound exceeds m (no paper's size is expected here);
4. direction only: the adjusted lower bound exceeds 0 otherwise;
5. contradicted: the adjusted upper bound is below 0 (opposite), or the 90% interval lies inside +-m (absent);
6. inconclusive: the rest.

Equivalences are reproduced when the 90% interval lies inside +-m and contradicted when the adjusted interval lies
outside it. "Not better" is reproduced when the adjusted upper bound is below m and contradicted when the lower
one exceeds m.
Orderings need every adjacent pair, without a correction inside.
Exact claims (the paper's arithmetic, closed forms) know no chance. They are reproduced when the computed number equals
the paper's within m, mostly half its last printed digit, else contradicted.

Where a contrast's sign turns in another setting (stemrepro.verdicts.robustness), it is inconclusive.
Levels are corrected for the number of claims (stemrepro.verdicts.multiplicity).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.multiplicity import (
    PRIMARY_ALPHA,
    PRIMARY_PLACES,
    SECONDARY_RATE,
    benjamini_hochberg_levels,
    holm_levels,
)
from stemrepro.verdicts.robustness import sign_flips

REPRODUCED = "reproduced"
DIRECTION = "direction only"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTABLE = "not testable at this scale"
NOT_RUN, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED = (
    "not run", "model too small", "runs too short", "task too easy", "confounded",
)  # fmt: skip
UNTESTED = (NOT_RUN, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED)
"""Why claims can't be tested: nothing was run, dense can't do the task, training is too short to show it, dense
leaves no room for a lead, or something else than the claim's contrast differs too."""
VERDICTS = (REPRODUCED, DIRECTION, CONTRADICTED, INCONCLUSIVE, NOT_TESTABLE)


@dataclass(frozen=True)
class Evidence:
    """What the runs say about one claim, before the rule is applied.

    Attributes:
        kind: greater, equivalent, not-better, ordering or exact.
        contrasts: one, or one for each adjacent pair of an ordering; of an exact claim the computed number.
        smallest_effect: m.
        paper_effect: E, or None.
        expected: the number of an exact claim that the paper doesn't have.
        primary: one of the at most eight.
        control: a question of ours, for which the paper has no size.
        failed_precondition: why the claim can't be tested here, or None; judged without the contrasts.
        untested: the kind of that reason, one of UNTESTED; "" where it can be tested.
        asked: what has to hold for the claim to be tested, in words.
        unmeasured: why the contrasts are NaN, or None.
        robustness: the same contrasts in other settings, by a name of stemrepro.verdicts.robustness.ROBUSTNESS.
    """

    kind: str
    contrasts: tuple[Contrast, ...]
    smallest_effect: float
    paper_effect: float | None = None
    expected: float | None = None
    primary: bool = False
    control: bool = False
    failed_precondition: str | None = None
    untested: str = ""
    asked: str = ""
    unmeasured: str | None = None
    robustness: Mapping[str, tuple[Contrast, ...]] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Seeds of the weakest contrast."""
        return min(len(contrast.differences) for contrast in self.contrasts)

    @property
    def null_band(self) -> float:
        """Size up to which an effect has no sign."""
        return self.smallest_effect if self.kind == "equivalent" else 0.0

    @property
    def weakest(self) -> Contrast:
        """The contrast with the smallest mean, which decides an ordering."""
        return min(self.contrasts, key=lambda contrast: contrast.mean)

    @property
    def printed(self) -> float:
        """The number that an exact claim says; ValueError for any other claim."""
        number = self.paper_effect if self.expected is None else self.expected
        if number is None:
            raise ValueError(f"a claim of kind '{self.kind}' says no value")
        return number

    def p(self, threshold: float) -> float:
        """Return the p against the value that the claim has to beat.

        It is 0 or m for most kinds, and m for equivalent and not-better.
        """
        if self.kind == "equivalent":
            contrast, m = self.contrasts[0], self.smallest_effect
            return min(1.0, contrast.p_above(m), contrast.reversed().p_above(m))
        if self.kind == "not-better":
            return self.contrasts[0].reversed().p_above(-self.smallest_effect)
        return max(contrast.p_above(threshold) for contrast in self.contrasts)


@dataclass(frozen=True)
class Step:
    """A question of the rule, with its answer.

    Attributes:
        numbers: what the answer rests on.
        yes: the verdict that ends the questions where the answer is yes; with "" the next question follows.
        no: the same where it is no.
        reason: why they end so, where they do.
    """

    question: str
    answer: bool
    numbers: str
    yes: str = ""
    no: str = ""
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The verdict of this answer, or ""."""
        return self.yes if self.answer else self.no


@dataclass(frozen=True)
class Judgement:
    """The steps to a verdict, which the last one has, and the numbers that it rests on.

    `level` is the interval's confidence level after adjustment.
    """

    steps: tuple[Step, ...]
    ours: float
    ci_low: float
    ci_high: float
    level: float
    p: float
    seed_se: float
    item_se: float

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        return self.steps[-1].verdict

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return self.steps[-1].reason


def levels(evidence: list[Evidence], threshold: str) -> list[float]:
    """Return the adjusted two-sided level of each claim against 0 ("zero") or against its m ("m")."""
    p = [e.p(0.0 if threshold == "zero" else e.smallest_effect) for e in evidence]
    adjusted = [0.0] * len(evidence)
    for primary, procedure in ((True, holm_levels), (False, benjamini_hochberg_levels)):
        members = [i for i, e in enumerate(evidence) if e.primary == primary and e.kind != "exact" and tested(e)]
        for number, level in zip(members, procedure([p[i] for i in members]), strict=True):
            adjusted[number] = level
    return adjusted


def unmeasured(evidence: Evidence) -> str:
    """Return the reason why there is too little to judge, or ""; the contrast's size is never looked at."""
    needed = 5 if evidence.primary else 3
    if evidence.unmeasured or evidence.kind == "exact" or evidence.seeds >= needed:
        return evidence.unmeasured or ""
    kind = "primary" if evidence.primary else "secondary"
    return f"{evidence.seeds} seed(s); a {kind} claim needs {needed}"


def tested(evidence: Evidence) -> bool:
    """Tell whether a claim takes part in the correction for many claims."""
    return not evidence.failed_precondition and not unmeasured(evidence)


def interval(contrast: Contrast, alpha: float) -> str:
    """Return a contrast's interval and its level in words."""
    low, high = contrast.interval(alpha)
    return f"{low:+.4f} to {high:+.4f} ({100 * (1 - alpha):.4g}%)"


def steps(e: Evidence, zero: float, above: float) -> tuple[Step, ...]:
    """Return the questions of one claim, up to the one that ends in its verdict.

    Args:
        zero: its adjusted level against 0.
        above: its adjusted level against m.
    """
    return _ended(_questions(e, zero, above))


def _ended(questions: Iterable[Step]) -> tuple[Step, ...]:
    taken = []
    for step in questions:
        taken.append(step)
        if step.verdict:
            break
    return tuple(taken)


def _questions(e: Evidence, zero: float, above: float) -> Iterator[Step]:
    """Yield the questions of one claim; the first are those of every kind."""
    failed, lost = e.failed_precondition, unmeasured(e)
    condition = failed or e.asked or "nothing is asked first"
    yield Step("Can it be tested here?", not failed, condition, no=NOT_TESTABLE, reason=failed or "")
    if e.kind == "exact" and not lost:
        yield _of_exact(e)
        return
    enough = f"{e.seeds} seeds, enough for a {'primary' if e.primary else 'secondary'} claim"
    yield Step("Is it measured, by enough seeds?", not lost, lost or enough, no=INCONCLUSIVE, reason=lost)
    turn = sign_flips(e.contrasts, e.robustness, e.null_band)
    intervals = [f"{name} {interval(c, 0.05)}" for name, contrasts in e.robustness.items() for c in contrasts]
    numbers = turn or "; ".join(intervals) or "none was run"
    yield Step("Does its sign turn in another setting?", bool(turn), numbers, yes=INCONCLUSIVE, reason=turn or "")
    if e.kind == "ordering":
        yield from _of_ordering(e, zero, above)
    elif e.kind == "greater":
        yield from _of_greater(e, e.weakest, zero, above)
    else:
        yield from _of_bounds(e, zero)


def _of_exact(e: Evidence) -> Step:
    computed, half = e.contrasts[0].mean, e.smallest_effect
    equal = abs(computed - e.printed) <= half + 1e-9
    text = f"{round(computed, 9) + 0.0:.6g}"  # a 0 with rounding errors is written as 0
    whose = "the paper's " if e.expected is None else ""
    why = f"{text} is {'' if equal else 'not '}{whose}{e.printed:g} within {half:g}"
    question = "Is the number the paper's?" if e.expected is None else "Is the number the claim's?"
    return Step(question, equal, why, yes=REPRODUCED, no=CONTRADICTED, reason=why)


def _of_greater(e: Evidence, contrast: Contrast, zero: float, above: float) -> Iterator[Step]:
    m, (low, high), (strict_low, _) = e.smallest_effect, contrast.interval(zero), contrast.interval(above)
    why = f"lower bound {strict_low:.3f} exceeds {m:g}"
    alone = REPRODUCED if e.control or e.kind == "ordering" else ""
    yield Step(f"Does the lower bound exceed {m:g}?", strict_low > m, interval(contrast, above), yes=alone, reason=why)
    if high < m:
        short = f"it is smaller than what counts, {m:g}"
    elif strict_low <= m:
        short = f"the effect is not shown to exceed {m:g}"
    elif e.paper_effect is None:
        short = "the paper gives no size to compare with"
    else:
        short = "the paper's size can't be expected at this scale"
    text, why = interval(contrast, zero), f"lower bound {low:.3f} exceeds 0; {short}"
    yield Step("Does the lower bound exceed 0?", low > 0, text, yes=DIRECTION, reason=why)
    why = f"opposite: upper bound {high:.3f} is below 0"
    yield Step("Is the upper bound below 0?", high < 0, text, yes=CONTRADICTED, reason=why)
    inside, text = _inside(contrast, m)
    why = f"absent: the {text}" if inside else f"the interval {low:.3f} to {high:.3f} holds 0"
    yield Step(_INSIDE.format(m), inside, interval(contrast, 0.10), yes=CONTRADICTED, no=INCONCLUSIVE, reason=why)


_INSIDE = "Does the 90% interval lie inside +-{:g}?"


def _inside(contrast: Contrast, m: float) -> tuple[bool, str]:
    """Tell whether the 90% interval lies inside +-m, and give that in words."""
    low, high = contrast.interval(0.10)
    return -m < low and high < m, f"90% interval {low:.3f} to {high:.3f} lies inside +-{m:g}"


def _of_ordering(e: Evidence, zero: float, above: float) -> Iterator[Step]:
    count = len(e.contrasts)
    plain, strict = (
        [_ended(_of_greater(e, contrast, zero / n, above / n))[-1] for contrast in e.contrasts] for n in (1, count)
    )

    def reasons(pairs: list[Step]) -> str:
        return "; ".join(f"pair {number}: {pair.reason}" for number, pair in enumerate(pairs, 1))

    def first(pairs: list[Step], *verdicts: str) -> str:
        """Return the first pair with the first of these verdicts that any pair has."""
        for verdict in verdicts:
            for number, pair in enumerate(pairs, 1):
                if pair.verdict == verdict:
                    return f"pair {number}: {pair.reason}"
        return ""

    contrary = first(strict, CONTRADICTED)
    question = f"Is a pair contradicted, at the level over {count}?"
    yield Step(question, bool(contrary), reasons(strict), yes=CONTRADICTED, reason=contrary)
    lost = first(plain, INCONCLUSIVE, CONTRADICTED)
    yield Step("Does every lower bound exceed 0?", not lost, reasons(plain), no=INCONCLUSIVE, reason=lost)
    short, weakest = first(plain, DIRECTION), int(np.argmin([contrast.mean for contrast in e.contrasts]))
    why = short or f"every adjacent pair, the weakest: {plain[weakest].reason}"
    question = f"Does every one exceed {e.smallest_effect:g}?"
    yield Step(question, not short, reasons(plain), yes=REPRODUCED, no=DIRECTION, reason=why)


def _of_bounds(e: Evidence, zero: float) -> Iterator[Step]:
    contrast, m = e.contrasts[0], e.smallest_effect
    (low, high), text = contrast.interval(zero), interval(contrast, zero)
    if e.kind == "not-better":
        why = f"upper bound {high:.3f} is below {m:g}"
        yield Step(f"Is the upper bound below {m:g}?", high < m, text, yes=REPRODUCED, reason=why)
        why = f"lower bound {low:.3f} exceeds {m:g}" if low > m else f"the interval holds {m:g}"
        yield Step(f"Does the lower bound exceed {m:g}?", low > m, text, yes=CONTRADICTED, no=INCONCLUSIVE, reason=why)
        return
    inside, inside_text = _inside(contrast, m)
    yield Step(_INSIDE.format(m), inside, interval(contrast, 0.10), yes=REPRODUCED, reason=f"the {inside_text}")
    outside = low > m or high < -m
    why = (
        f"the interval {low:.3f} to {high:.3f} {'lies outside' if outside else 'is neither inside nor outside'} +-{m:g}"
    )
    question = f"Does the interval lie outside +-{m:g}?"
    yield Step(question, outside, text, yes=CONTRADICTED, no=INCONCLUSIVE, reason=why)


def judge(evidence: list[Evidence]) -> list[Judgement]:
    """Apply the rule to all claims of a recipe together, because levels depend on the family."""
    zero, above = levels(evidence, "zero"), levels(evidence, "m")
    judgements = []
    for e, zero_level, m_level in zip(evidence, zero, above, strict=True):
        contrast, level = e.weakest, zero_level or (PRIMARY_ALPHA / PRIMARY_PLACES if e.primary else SECONDARY_RATE)
        low, high = contrast.interval(level)
        taken = steps(e, zero_level, m_level)
        judgements.append(
            Judgement(taken, contrast.mean, low, high, 1 - level, e.p(0.0), contrast.seed_se, contrast.item_se)
        )
    return judgements
