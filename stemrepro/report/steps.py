"""A claim judged anew, question by question: what the rule of stemrepro.verdicts.rule asks, in its order, with the numbers behind each answer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stemrepro.measures.base import Measure, measure_class, measured
from stemrepro.measures.inputs import Inputs
from stemrepro.report.results import evidence_for
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import turned
from stemrepro.verdicts.rule import (
    CONTRADICTED,
    DIRECTION,
    INCONCLUSIVE,
    NOT_TESTABLE,
    REPRODUCED,
    Evidence,
    Judgement,
    blocked,
    judge,
    judge_exact,
    judge_greater,
    levels,
)


@dataclass(frozen=True)
class Step:
    """A question.

    Attributes:
        numbers: what the answer rests on.
        yes: the verdict that ends the questions where the answer is yes; "" goes on to the next.
        no: the same where it is no.
    """

    question: str
    answer: bool
    numbers: str
    yes: str = ""
    no: str = ""

    @property
    def verdict(self) -> str:
        """What this answer ends in, or ""."""
        return self.yes if self.answer else self.no


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured, what the rule makes of it, and how."""

    evidence: Evidence
    result: Judgement
    steps: list[Step]

    @property
    def tested(self) -> bool:
        """Does it take part in the correction for many claims?"""
        return blocked(self.evidence) is None


def judged(inputs: Inputs, measure: Measure | None = None) -> dict[str, Judged]:
    """A recipe's claims, judged together because levels depend on the family; none where scores are not on disk.

    Args:
        measure: what was measured, where that is at hand; None reads the scores.

    Raises:
        UserError: scores are damaged.
    """
    recipe, claims = inputs.recipe, inputs.recipe.claims
    folders = [Path(part) / at.path for at, parts in recipe.scored().items() for part in parts]
    folders += [Path("text")] if measure_class(recipe.measure).reads_text else []
    if not all((inputs.folder / folder).is_dir() for folder in folders):
        return {}
    measure = measure or measured(inputs)
    evidence = [evidence_for(claim, measure) for claim in claims.values()]
    asked = ["; ".join(measure.preconditions[name].words for name in own.preconditions) for own in claims.values()]
    return {
        key: Judged(evidence[n], result, steps(evidence, n, asked[n]))
        for n, (key, result) in enumerate(zip(claims, judge(evidence), strict=True))
    }


def steps(evidence: list[Evidence], number: int, asked: str) -> list[Step]:
    """The questions of one claim, up to the one that ends in its verdict.

    Args:
        evidence: of all claims of the recipe.
        number: which of them.
        asked: the claim's preconditions in words, "" for none.
    """
    zero, above = (levels(evidence, threshold)[number] for threshold in ("zero", "m"))
    taken = []
    for step in _questions(evidence[number], zero, above, asked):
        taken.append(step)
        if step.verdict:
            break
    return taken


def interval(contrast: Contrast, alpha: float) -> str:
    """A contrast's interval and its level."""
    low, high = contrast.interval(alpha)
    return f"{low:+.4f} to {high:+.4f} ({100 * (1 - alpha):.4g}%)"


def _questions(e: Evidence, zero: float, above: float, asked: str) -> Iterator[Step]:
    """Those of every kind first; `zero` and `above` are the levels against 0 and against m."""
    failed = e.failed_precondition
    yield Step("Can it be tested here?", not failed, failed or asked or "nothing is asked first", no=NOT_TESTABLE)
    stopped = blocked(replace(e, failed_precondition=None))
    if e.kind == "exact" and not stopped:
        verdict, why = judge_exact(e)
        yield Step(
            "Is the number the paper's?" if e.expected is None else "Is the number the claim's?",
            verdict == REPRODUCED,
            why,
            REPRODUCED,
            CONTRADICTED,
        )
        return
    seeds = f"{e.seeds} seeds, enough for a {'primary' if e.primary else 'secondary'} claim"
    yield Step("Is it measured, by enough seeds?", not stopped, stopped[1] if stopped else seeds, no=INCONCLUSIVE)
    turn = turned(e.contrasts, e.elsewhere, e.nothing)
    there = "; ".join(f"{name} {interval(c, 0.05)}" for name, own in e.elsewhere.items() for c in own)
    yield Step("Does its sign turn in another setting?", bool(turn), turn or there or "none was run", INCONCLUSIVE)
    kinds = {"ordering": _of_ordering, "greater": _of_greater}
    yield from kinds.get(e.kind, _of_bounds)(e, zero, above)


def _inside(e: Evidence) -> tuple[str, bool, str]:
    (low, high), m = e.weakest.interval(0.10), e.smallest_effect
    return f"Does the 90% interval lie inside +-{m:g}?", -m < low and high < m, interval(e.weakest, 0.10)


def _of_greater(e: Evidence, zero: float, above: float) -> Iterator[Step]:
    m, size, contrast = e.smallest_effect, e.paper_effect, e.weakest
    (low, high), (strict_low, strict_high) = contrast.interval(zero), contrast.interval(above)
    counts = f"Does the lower bound exceed {m:g}?", strict_low > m, interval(contrast, above)
    yield Step(*counts, yes=REPRODUCED if e.control else "")
    if strict_low > m:
        expected = bool(size and e.transportable)
        told = f"it is {size:g}, and the recipe says {'so' if expected else 'no'}" if size else "it gives none"
        yield Step("May the paper's size be expected here?", expected, told)
        if expected:
            meets = strict_low <= 2 * size and strict_high >= size / 2
            yield Step("Is half to twice it met?", meets, f"{size / 2:g} to {2 * size:g}", REPRODUCED)
    yield Step("Does the lower bound exceed 0?", low > 0, interval(contrast, zero), DIRECTION)
    yield Step("Is the upper bound below 0?", high < 0, interval(contrast, zero), CONTRADICTED)
    yield Step(*_inside(e), CONTRADICTED, INCONCLUSIVE)


def _of_bounds(e: Evidence, zero: float, above: float) -> Iterator[Step]:
    (low, high), m, said = e.weakest.interval(zero), e.smallest_effect, interval(e.weakest, zero)
    if e.kind == "not-better":
        yield Step(f"Is the upper bound below {m:g}?", high < m, said, REPRODUCED)
        yield Step(f"Does the lower bound exceed {m:g}?", low > m, said, CONTRADICTED, INCONCLUSIVE)
        return
    yield Step(*_inside(e), REPRODUCED)
    outside = low > m or high < -m
    yield Step(f"Does the interval lie outside +-{m:g}?", outside, said, CONTRADICTED, INCONCLUSIVE)


def _of_ordering(e: Evidence, zero: float, above: float) -> Iterator[Step]:
    count = len(e.contrasts)
    plain, strict = ([judge_greater(e, c, zero / n, above / n) for c in e.contrasts] for n in (1, count))
    said, strictly = ("; ".join(f"pair {n}: {why}" for n, (_, why) in enumerate(own, 1)) for own in (plain, strict))
    there, contrary = {verdict for verdict, _ in plain}, CONTRADICTED in {verdict for verdict, _ in strict}
    yield Step(f"Is a pair contradicted, at the level over {count}?", contrary, strictly, CONTRADICTED)
    yield Step("Does every lower bound exceed 0?", there <= {REPRODUCED, DIRECTION}, said, no=INCONCLUSIVE)
    yield Step(f"Does every one exceed {e.smallest_effect:g}?", there == {REPRODUCED}, said, REPRODUCED, DIRECTION)
