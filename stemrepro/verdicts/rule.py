"""One rule from paired differences to a verdict, the same for every claim; docs/verdicts.md says when it was changed.

`differences[s]` is a paired difference for seed s (same batches, same starting backbone), signed so that the claim makes
it positive. `m` is the smallest effect that counts, `E` the paper's effect. In this order:

1. not testable at this scale: a precondition fails, judged without the contrast;
2. inconclusive: fewer than 3 seeds, or fewer than 5 for a primary claim, or a run that diverged;
3. reproduced: the adjusted lower bound exceeds m, E is transportable and the interval meets [E/2, 2E]; of a control, which has no E,
   the lower bound alone tells;
4. direction only: the adjusted lower bound exceeds 0 otherwise;
5. contradicted: the adjusted upper bound is below 0 (opposite), or the 90% interval lies inside +-m (absent);
6. inconclusive: the rest.

Equivalences are reproduced when the 90% interval lies inside +-m and contradicted when the adjusted interval lies outside
it; "not better" is reproduced when the adjusted upper bound is below m and contradicted when the lower one exceeds m;
orderings need every adjacent pair, without a correction inside. Exact claims (the paper's arithmetic, closed forms) know no
chance: reproduced when the computed number equals the paper's within m, mostly half its last printed digit, else contradicted.

Where a contrast's sign turns in another setting (stemrepro.verdicts.robustness), it is inconclusive. Levels are corrected for the number of claims
(stemrepro.verdicts.multiplicity).
"""

from collections.abc import Mapping
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
from stemrepro.verdicts.robustness import turned

REPRODUCED = "reproduced"
DIRECTION = "direction only"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTABLE = "not testable at this scale"
NOT_RUN, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED = (
    "not run", "model too small", "runs too short", "task too easy", "confounded",
)  # fmt: skip
UNTESTED = (NOT_RUN, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED)
"""Why claims can't be tested: nothing was run, dense can't do the task, training is too short to show it, dense leaves no room for a
lead, or something else than the claim's contrast differs too."""
VERDICTS = (REPRODUCED, DIRECTION, CONTRADICTED, INCONCLUSIVE, NOT_TESTABLE)


@dataclass(frozen=True)
class Evidence:
    """What the runs say about one claim, before the rule is applied.

    Attributes:
        kind: greater, equivalent, not-better, ordering or exact.
        contrasts: one, or one for each adjacent pair of an ordering; of an exact claim the computed number.
        smallest_effect: m.
        paper_effect: E, or None.
        expected: what an exact claim says where the paper has no number.
        transportable: may E be expected at this scale?
        primary: one of the at most eight.
        control: a question of ours, to which the paper has no size.
        failed_precondition: why the claim can't be tested here, or None; judged without the contrasts.
        untested: of which kind that is, one of UNTESTED; "" where it can be tested.
        unmeasured: why the contrasts are nan, or None.
        elsewhere: the same contrasts in other settings, by a name of stemrepro.verdicts.robustness.ELSEWHERE.
    """

    kind: str
    contrasts: tuple[Contrast, ...]
    smallest_effect: float
    paper_effect: float | None = None
    expected: float | None = None
    transportable: bool = False
    primary: bool = False
    control: bool = False
    failed_precondition: str | None = None
    untested: str = ""
    unmeasured: str | None = None
    elsewhere: Mapping[str, tuple[Contrast, ...]] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Seeds of the weakest contrast."""
        return min(len(contrast.differences) for contrast in self.contrasts)

    @property
    def nothing(self) -> float:
        """Up to which size an effect has no sign."""
        return self.smallest_effect if self.kind == "equivalent" else 0.0

    @property
    def weakest(self) -> Contrast:
        """The contrast with the smallest mean, the one that an ordering hangs on."""
        return min(self.contrasts, key=lambda contrast: contrast.mean)

    def p(self, threshold: float) -> float:
        """p against the value that the claim has to beat: 0 or m for most kinds, m for equivalence and not-better."""
        if self.kind == "equivalent":
            contrast, m = self.contrasts[0], self.smallest_effect
            return min(1.0, contrast.p_above(m), contrast.reversed().p_above(m))
        if self.kind == "not-better":
            return self.contrasts[0].reversed().p_above(-self.smallest_effect)
        return max(contrast.p_above(threshold) for contrast in self.contrasts)


@dataclass(frozen=True)
class Judgement:
    """A verdict with the numbers it rests on; `level` is the interval's confidence level after adjustment."""

    verdict: str
    reason: str
    ours: float
    ci_low: float
    ci_high: float
    level: float
    p: float
    seed_se: float
    item_se: float


def levels(evidence: list[Evidence], threshold: str) -> list[float]:
    """The adjusted two-sided level of each claim against 0 ("zero") or against its m ("m")."""
    p = [e.p(0.0 if threshold == "zero" else e.smallest_effect) for e in evidence]
    found = [0.0] * len(evidence)
    for primary, procedure in ((True, holm_levels), (False, benjamini_hochberg_levels)):
        members = [i for i, e in enumerate(evidence) if e.primary == primary and e.kind != "exact" and not blocked(e)]
        for number, level in zip(members, procedure([p[i] for i in members]), strict=True):
            found[number] = level
    return found


def blocked(evidence: Evidence) -> tuple[str, str] | None:
    """Steps 1 and 2 of the rule, which never look at the size of the contrast."""
    if evidence.failed_precondition:
        return NOT_TESTABLE, evidence.failed_precondition
    if evidence.unmeasured:
        return INCONCLUSIVE, evidence.unmeasured
    if evidence.kind == "exact":
        return None
    needed = 5 if evidence.primary else 3
    if evidence.seeds < needed:
        kind = "primary" if evidence.primary else "secondary"
        return INCONCLUSIVE, f"{evidence.seeds} seed(s); a {kind} claim needs {needed}"
    return None


def judge_greater(e: Evidence, contrast: Contrast, zero: float, above: float) -> tuple[str, str]:
    m, (low, high) = e.smallest_effect, contrast.interval(zero)
    strict_low, strict_high = contrast.interval(above)
    absent_low, absent_high = contrast.interval(0.10)
    size = e.paper_effect
    if strict_low > m and (e.kind == "ordering" or e.control):
        return REPRODUCED, f"lower bound {strict_low:.3f} exceeds {m:g}"
    if strict_low > m and e.transportable and size and strict_low <= 2 * size and strict_high >= size / 2:
        return (
            REPRODUCED,
            f"lower bound {strict_low:.3f} exceeds {m:g} and the interval meets half to twice the paper's {size:g}",
        )
    if low > 0:
        if high < m:
            why = f"it is smaller than what counts, {m:g}"
        elif strict_low <= m:
            why = f"the effect is not shown to exceed {m:g}"
        elif size is None:
            why = "the paper gives no size to compare with"
        elif not e.transportable:
            why = "the paper's size can't be expected at this scale"
        else:
            why = f"the interval misses half to twice the paper's {size:g}"
        return DIRECTION, f"lower bound {low:.3f} exceeds 0; {why}"
    if high < 0:
        return CONTRADICTED, f"opposite: upper bound {high:.3f} is below 0"
    if -m < absent_low and absent_high < m:
        return CONTRADICTED, f"absent: the 90% interval {absent_low:.3f} to {absent_high:.3f} lies inside +-{m:g}"
    return INCONCLUSIVE, f"the interval {low:.3f} to {high:.3f} holds 0"


def _judge_ordering(e: Evidence, zero: float, above: float) -> tuple[str, str]:
    pairs = [judge_greater(e, contrast, zero, above) for contrast in e.contrasts]
    corrected = [judge_greater(e, c, zero / len(pairs), above / len(pairs)) for c in e.contrasts]
    for number, (verdict, reason) in enumerate(corrected):
        if verdict == CONTRADICTED:
            return CONTRADICTED, f"pair {number + 1}: {reason}"
    verdicts = [verdict for verdict, _ in pairs]
    for verdict in (INCONCLUSIVE, CONTRADICTED, DIRECTION):
        if verdict in verdicts:
            number = verdicts.index(verdict)
            return (DIRECTION if verdict == DIRECTION else INCONCLUSIVE), f"pair {number + 1}: {pairs[number][1]}"
    weakest = int(np.argmin([contrast.mean for contrast in e.contrasts]))
    return REPRODUCED, f"every adjacent pair, the weakest: {pairs[weakest][1]}"


def _judge_bounds(e: Evidence, level: float) -> tuple[str, str]:
    contrast, m = e.contrasts[0], e.smallest_effect
    low, high = contrast.interval(level)
    if e.kind == "not-better":
        if high < m:
            return REPRODUCED, f"upper bound {high:.3f} is below {m:g}"
        return (
            (CONTRADICTED, f"lower bound {low:.3f} exceeds {m:g}")
            if low > m
            else (INCONCLUSIVE, f"the interval holds {m:g}")
        )
    low90, high90 = contrast.interval(0.10)
    if -m < low90 and high90 < m:
        return REPRODUCED, f"the 90% interval {low90:.3f} to {high90:.3f} lies inside +-{m:g}"
    if low > m or high < -m:
        return CONTRADICTED, f"the interval {low:.3f} to {high:.3f} lies outside +-{m:g}"
    return INCONCLUSIVE, f"the interval {low:.3f} to {high:.3f} is neither inside nor outside +-{m:g}"


def judge_exact(e: Evidence) -> tuple[str, str]:
    found, half = e.contrasts[0].mean, e.smallest_effect
    printed, whose = (e.paper_effect, "the paper's ") if e.expected is None else (e.expected, "")
    said = f"{round(found, 9) + 0.0:.6g}"  # else what roundings leave of a 0 is told as a number
    if abs(found - printed) <= half + 1e-9:
        return REPRODUCED, f"{said} is {whose}{printed:g} within {half:g}"
    return CONTRADICTED, f"{said} is not {whose}{printed:g} within {half:g}"


def judge(evidence: list[Evidence]) -> list[Judgement]:
    """Applies the rule to all claims of a recipe together, because levels depend on the family."""
    zero, above = levels(evidence, "zero"), levels(evidence, "m")
    judgements = []
    for e, zero_level, m_level in zip(evidence, zero, above, strict=True):
        contrast, stopped = e.weakest, blocked(e)
        level = zero_level or (PRIMARY_ALPHA / PRIMARY_PLACES if e.primary else SECONDARY_RATE)
        if stopped:
            verdict, reason = stopped
        elif turn := turned(e.contrasts, e.elsewhere, e.nothing):
            verdict, reason = INCONCLUSIVE, turn
        elif e.kind == "exact":
            verdict, reason = judge_exact(e)
        elif e.kind == "ordering":
            verdict, reason = _judge_ordering(e, zero_level, m_level)
        elif e.kind == "greater":
            verdict, reason = judge_greater(e, contrast, zero_level, m_level)
        else:
            verdict, reason = _judge_bounds(e, zero_level)
        low, high = contrast.interval(level)
        judgements.append(
            Judgement(
                verdict, reason, contrast.mean, low, high, 1 - level, e.p(0.0), contrast.seed_se, contrast.item_se
            )
        )
    return judgements
