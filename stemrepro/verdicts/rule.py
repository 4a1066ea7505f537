"""One rule from differences to a word, the same for every claim; docs/verdicts.md says when it was changed.

A difference is signed so that the claim makes it positive. m is the smallest effect that counts. In this order:

1. not tested: nothing was attempted, or a precondition fails, judged without the contrast;
2. undecided: a run diverged, fewer than 3 seeds, fewer than 5 of a primary claim, or a sign that turns elsewhere;
3. of an effect above 0 (`greater`):
   contradicted, "absent": the effect is shown to lie inside +-m;
   supported: it is shown to be above 0;
   contradicted, "opposite": it is shown to be below 0;
4. of an equivalence: supported where the effect is shown to lie inside +-m, contradicted where outside;
5. of "not better": supported where the effect is shown to be below m, contradicted where above;
6. of an ordering: contradicted where a pair is shown to be absent or opposite, supported where every pair is above 0;
7. undecided: the rest.

"Shown" is a p below 5% after the correction for many claims (stemrepro.verdicts.multiplicity). All p are two-sided, so
that what is shown also lies clear of the 95% interval. A claim brings the p of its own null and, where its absence is
another test, the p of that; both are adjusted alike.
Exact claims (arithmetic, closed forms) know no chance: supported where the computed number is the printed one within m,
mostly half its last digit, else contradicted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.multiplicity import ALPHA, benjamini_hochberg, holm
from stemrepro.verdicts.robustness import sign_flips

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_TESTED = "not tested"
NOT_ATTEMPTED, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED = (
    "not attempted", "model too small", "runs too short", "task too easy", "confounded",
)  # fmt: skip
UNTESTED = (NOT_ATTEMPTED, TOO_SMALL, TOO_SHORT, TOO_EASY, CONFOUNDED)
"""Why claims aren't tested: nothing was run, dense can't do the task, training is too short to show it, dense leaves no
room for a lead, or something else than the claim's contrast differs too."""
VERDICTS = (SUPPORTED, CONTRADICTED, UNDECIDED, NOT_TESTED)
SAME_SIZE, OTHER_SIZE, NO_SIZE = "the paper's size", "another size", "can't be compared"
SIZES = (SAME_SIZE, OTHER_SIZE, NO_SIZE)
"""What is said of the size of a result of the paper's; no verdict depends on it."""


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
    failed_precondition: str | None = None
    untested: str = ""
    asked: str = ""
    unmeasured: str | None = None
    robustness: Mapping[str, tuple[Contrast, ...]] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Seeds of the weakest contrast."""
        return min(contrast.seeds for contrast in self.contrasts)

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

    @property
    def p(self) -> float:
        """The p of the claim's own null.

        It is an effect of 0; of an equivalence one of m or more in size; of "not better" one of m. An ordering has the
        largest of its pairs', where a pair with the wrong sign has 1.
        """
        contrast, m = self.contrasts[0], self.smallest_effect
        if self.kind == "equivalent":
            return contrast.p_inside(m)
        if self.kind == "not-better":
            return contrast.p(m)
        if self.kind == "ordering":
            return max(pair.p_above(0.0) for pair in self.contrasts)
        return contrast.p(0.0)

    @property
    def other_p(self) -> float | None:
        """The p of the null whose rejection contradicts the claim, where that isn't the claim's own null.

        It is an effect of m or more in size, which an absent one rejects; of an equivalence one of at most m. Of an
        ordering it is the least of its pairs' p, absent or opposite, times their number.
        """
        if self.kind == "not-better":
            return None
        if self.kind == "equivalent":
            return self.contrasts[0].p_outside(self.smallest_effect)
        if self.kind == "ordering":
            return min(1.0, 2 * len(self.contrasts) * min(map(self.against, self.contrasts)))
        return self.contrasts[0].p_inside(self.smallest_effect)

    def against(self, pair: Contrast) -> float:
        """Return the p by which a pair of an ordering is absent or opposite."""
        return min(pair.p_inside(self.smallest_effect), pair.p_below(0.0))


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

    `ours`, the 95% interval and the errors are those of the weakest contrast, in the metric's unit. The p are those of
    `Evidence`, alone and adjusted; None where the claim is not judged by chance.
    """

    steps: tuple[Step, ...]
    ours: float
    ci_low: float
    ci_high: float
    seed_se: float
    item_se: float
    p: float | None = None
    adjusted_p: float | None = None
    other_p: float | None = None
    adjusted_other_p: float | None = None

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        return self.steps[-1].verdict

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return self.steps[-1].reason


def unmeasured(evidence: Evidence) -> str:
    """Return the reason why there is too little to judge, or ""; the contrast's size is never looked at."""
    needed = 5 if evidence.primary else 3
    if evidence.unmeasured or evidence.kind == "exact" or evidence.seeds >= needed:
        return evidence.unmeasured or ""
    kind = "primary" if evidence.primary else "secondary"
    return f"{evidence.seeds} seed(s); a {kind} claim needs {needed}"


def tested(evidence: Evidence) -> bool:
    """Tell whether a claim takes part in the correction for many claims."""
    return evidence.kind != "exact" and not evidence.failed_precondition and not unmeasured(evidence)


def adjusted(evidence: list[Evidence]) -> list[tuple[float, float | None] | None]:
    """Return the adjusted p of each claim: of its own null, and of the other one; None for claims without a test.

    Primary claims: Holm over their own p, and over their other p. All other claims: one procedure over all p.
    """
    result: list[tuple[float, float | None] | None] = [None] * len(evidence)
    pairs = {number: (e.p, e.other_p) for number, e in enumerate(evidence) if tested(e)}
    for primary in (True, False):
        members = [number for number in pairs if evidence[number].primary == primary]
        own = [pairs[number][0] for number in members]
        others = {number: p for number in members if (p := pairs[number][1]) is not None}
        changed = holm(own) + holm(list(others.values())) if primary else benjamini_hochberg([*own, *others.values()])
        other = dict(zip(others, changed[len(own) :], strict=True))
        for number, p in zip(members, changed, strict=False):
            result[number] = (p, other.get(number))
    return result


def size(evidence: Evidence, comparable: bool) -> str:
    """Return what is said of an effect's size next to the paper's: one of SIZES.

    It is the paper's where the 95% interval meets E/2 to 2E.

    Args:
        evidence: of a claim about an effect.
        comparable: whether metric, tokens per parameter and regime are the paper's.
    """
    effect = evidence.paper_effect
    if not comparable or effect is None:
        return NO_SIZE
    low, high = evidence.weakest.interval(ALPHA)
    least, most = sorted((effect / 2, 2 * effect))
    return SAME_SIZE if low <= most and high >= least else OTHER_SIZE


def interval(contrast: Contrast) -> str:
    """Return a contrast's 95% interval in words."""
    low, high = contrast.interval(ALPHA)
    return f"{low:+.4f} to {high:+.4f}"


def _in_words(p: float) -> str:
    return "below 0.0001" if p < 0.0001 else f"{p:.2g}"


def steps(e: Evidence, own: float = 1.0, other: float | None = None) -> tuple[Step, ...]:
    """Return the questions of one claim, up to the one that ends in its verdict.

    Args:
        e: of the claim.
        own: its adjusted p.
        other: its other p, adjusted.
    """
    taken = []
    for step in _questions(e, own, 1.0 if other is None else other):
        taken.append(step)
        if step.verdict:
            break
    return tuple(taken)


def _questions(e: Evidence, own: float, other: float) -> Iterator[Step]:
    """Yield the questions of one claim; the first are those of every kind."""
    failed, lost = e.failed_precondition, unmeasured(e)
    condition = failed or e.asked or "nothing is asked first"
    yield Step("Can it be tested here?", not failed, condition, no=NOT_TESTED, reason=failed or "")
    if e.kind == "exact" and not lost:
        yield _of_exact(e)
        return
    enough = f"{e.seeds} seeds, enough for a {'primary' if e.primary else 'secondary'} claim"
    yield Step("Is it measured, by enough seeds?", not lost, lost or enough, no=UNDECIDED, reason=lost)
    turn = sign_flips(e.contrasts, e.robustness, e.null_band)
    intervals = [f"{name} {interval(c)}" for name, contrasts in e.robustness.items() for c in contrasts]
    numbers = turn or "; ".join(intervals) or "none was run"
    yield Step("Does its sign turn in another setting?", bool(turn), numbers, yes=UNDECIDED, reason=turn or "")
    of_kind = {"ordering": _of_ordering, "equivalent": _of_equivalence, "not-better": _of_not_better}
    yield from of_kind.get(e.kind, _of_greater)(e, own, other)


def _of_exact(e: Evidence) -> Step:
    computed, half = e.contrasts[0].mean, e.smallest_effect
    equal = abs(computed - e.printed) <= half + 1e-9
    text = f"{round(computed, 9) + 0.0:.6g}"  # a 0 with rounding errors is written as 0
    whose = "the paper's " if e.expected is None else ""
    why = f"{text} is {'' if equal else 'not '}{whose}{e.printed:g} within {half:g}"
    question = "Is the number the paper's?" if e.expected is None else "Is the number the claim's?"
    return Step(question, equal, why, yes=SUPPORTED, no=CONTRADICTED, reason=why)


def _shown(p: float, contrast: Contrast) -> str:
    return f"adjusted p {_in_words(p)}; 95% interval {interval(contrast)}"


def _of_greater(e: Evidence, own: float, other: float) -> Iterator[Step]:
    contrast, m = e.contrasts[0], e.smallest_effect
    why = f"absent: the effect lies inside +-{m:g}, adjusted p {_in_words(other)}"
    yield Step(
        f"Is it shown to lie inside +-{m:g}?", other < ALPHA, _shown(other, contrast), yes=CONTRADICTED, reason=why
    )
    text, p, above = _shown(own, contrast), _in_words(own), own < ALPHA and contrast.mean > 0
    why = f"above 0, adjusted p {p}"
    yield Step("Is it shown to be above 0?", above, text, yes=SUPPORTED, reason=why)
    below = own < ALPHA and contrast.mean < 0
    why = f"opposite: below 0, adjusted p {p}" if below else f"neither above nor below 0 is shown, adjusted p {p}"
    yield Step("Is it shown to be below 0?", below, text, yes=CONTRADICTED, no=UNDECIDED, reason=why)


def _of_equivalence(e: Evidence, own: float, other: float) -> Iterator[Step]:
    contrast, m = e.contrasts[0], e.smallest_effect
    why = f"inside +-{m:g}, adjusted p {_in_words(own)}"
    yield Step(f"Is it shown to lie inside +-{m:g}?", own < ALPHA, _shown(own, contrast), yes=SUPPORTED, reason=why)
    outside, p = other < ALPHA, _in_words(other)
    why = f"outside +-{m:g}, adjusted p {p}" if outside else f"neither inside nor outside +-{m:g} is shown"
    question = f"Is it shown to lie outside +-{m:g}?"
    yield Step(question, outside, _shown(other, contrast), yes=CONTRADICTED, no=UNDECIDED, reason=why)


def _of_not_better(e: Evidence, own: float, other: float) -> Iterator[Step]:
    contrast, m, p = e.contrasts[0], e.smallest_effect, _in_words(own)
    text, shown, below = _shown(own, contrast), own < ALPHA, contrast.mean < m
    why = f"below {m:g}, adjusted p {p}"
    yield Step(f"Is it shown to be below {m:g}?", shown and below, text, yes=SUPPORTED, reason=why)
    why = f"above {m:g}, adjusted p {p}" if shown else f"neither below nor above {m:g} is shown, adjusted p {p}"
    question = f"Is it shown to be above {m:g}?"
    yield Step(question, shown and not below, text, yes=CONTRADICTED, no=UNDECIDED, reason=why)


def _of_ordering(e: Evidence, own: float, other: float) -> Iterator[Step]:
    m = e.smallest_effect
    worst = min(range(len(e.contrasts)), key=lambda number: e.against(e.contrasts[number]))
    pair = e.contrasts[worst]
    kind = "absent" if pair.p_inside(m) <= pair.p_below(0.0) else "opposite"
    numbers = "; ".join(f"pair {n}: {interval(c)}" for n, c in enumerate(e.contrasts, 1))
    why = f"pair {worst + 1} is {kind}: {interval(pair)}, adjusted p {_in_words(other)}"
    yield Step("Is a pair shown to be absent or opposite?", other < ALPHA, numbers, yes=CONTRADICTED, reason=why)
    all_above = own < ALPHA
    why = f"{'every' if all_above else 'not every'} pair is shown to be above 0, adjusted p {_in_words(own)}"
    yield Step("Is every pair shown to be above 0?", all_above, numbers, yes=SUPPORTED, no=UNDECIDED, reason=why)


def judge(evidence: Iterable[Evidence]) -> list[Judgement]:
    """Apply the rule to all claims of a page together, because adjusted p depend on the family."""
    evidence = list(evidence)
    judgements = []
    for e, p in zip(evidence, adjusted(evidence), strict=True):
        contrast = e.weakest
        low, high = contrast.interval(ALPHA)
        errors = contrast.seed_se, contrast.item_se
        ps = (e.p, p[0], e.other_p, p[1]) if p else ()
        judgements.append(Judgement(steps(e, *(p or ())), contrast.mean, low, high, *errors, *ps))
    return judgements
