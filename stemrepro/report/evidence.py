"""A recipe's claims, measured and judged from its scores alone, as rows of verdicts.json."""

import math
from typing import NamedTuple

import numpy as np

from stemrepro.config.recipe import Claim, Estimate
from stemrepro.measures.base import ON_SCALE, Measure, failure
from stemrepro.verdicts.contrast import Contrast, Unmeasured
from stemrepro.verdicts.rule import DECIDES, NOT_TESTED, PRINTED, Evidence, Step, size, steps

METHOD = "t over seeds"
OWN_SETTINGS = "at own studied settings"


class Judged(NamedTuple):
    """A claim with what was measured and the steps to its verdict, which the last one has."""

    name: str
    claim: Claim
    evidence: Evidence
    steps: list[Step]


def contrast_of(asked: Claim | Estimate, measure: Measure) -> Contrast:
    """Return the contrast of a claim or an estimate in the common setting; without arms it holds the one number."""
    if not asked.arms:
        return Contrast(np.array([measure.value(asked.metric)]))
    return measure.contrast(*asked.arms, asked.metric)


def judged_contrast(claim: Claim, measure: Measure) -> tuple[Contrast, bool]:
    """Return a claim's contrast at each arm's own studied settings where both have them, and whether it is that."""
    own = measure.own(*claim.arms, claim.metric) if claim.arms else None
    return (contrast_of(claim, measure), False) if own is None else (own, True)


def evidence_for(claim: Claim, measure: Measure) -> Evidence:
    """Collect what the rule needs to know of a claim."""
    failed = unmeasured = None
    asked = [measure.preconditions[name].words for name in claim.preconditions]
    contrast, own = Contrast(np.array([math.nan])), False
    try:
        failed = failure(measure, claim)
        asked = [ON_SCALE, *asked] if measure.levels(claim.metric) else asked
        contrast, own = judged_contrast(claim, measure)
    except Unmeasured as reason:
        unmeasured = str(reason)
    if (lost := int(np.isnan(contrast.differences).sum())) and not unmeasured:
        unmeasured = f"in {lost} of {contrast.seeds} seeds the contrast has no value"
    return Evidence(
        kind=claim.kind,
        contrast=contrast,
        smallest_effect=claim.smallest_effect,
        paper_effect=claim.paper.value if claim.paper else None,
        expected=claim.expected,
        failed_precondition=failed and failed[0],
        untested=failed[1] if failed else "",
        asked="; ".join(asked),
        unmeasured=unmeasured,
        own_settings=own,
    )


def judged(measure: Measure, only: str | None = None) -> list[Judged]:
    """Judge the claims of a recipe, or one of them."""
    claims = {name: claim for name, claim in measure.inputs.recipe.claims.items() if only in (None, name)}
    evidence = {name: evidence_for(claim, measure) for name, claim in claims.items()}
    return [Judged(name, claims[name], facts, steps(facts)) for name, facts in evidence.items()]


def method(facts: Evidence) -> str:
    """Return how a claim's interval was formed, in words."""
    words = f"t over {facts.contrast.over}" if facts.contrast.paired else f"{METHOD}, not paired (Welch)"
    words += "" if facts.contrast.logits is None else ", on logits"
    return f"{words}, {OWN_SETTINGS}" if facts.own_settings else words


def size_of(one: Judged) -> str | None:
    """Return what is said of the size of a result of the paper's; None where there is no effect to have one."""
    claim, facts = one.claim, one.evidence
    if claim.origin != "paper" or claim.kind != "greater" or one.steps[-1].verdict == NOT_TESTED:
        return None
    return size(facts, claim.comparable) if math.isfinite(facts.contrast.interval(PRINTED)[0]) else None


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def verdict_rows(scale: str, claims: list[Judged]) -> list[dict]:
    """Return one row per claim, as verdicts.json holds them."""
    rows = []
    for one in claims:
        facts, contrast, last = one.evidence, one.evidence.contrast, one.steps[-1]
        exact = facts.kind == "exact"
        counted = not exact and not facts.unmeasured
        (low, high), (wide_low, wide_high) = contrast.interval(PRINTED), contrast.interval(DECIDES)
        ends = {"ci_low": low, "ci_high": high, "ci99_low": wide_low, "ci99_high": wide_high}
        rows.append({
            "claim": one.name,
            **one.claim.model_dump(mode="json", exclude={"preconditions", "comparable"}),
            "ours": _number(contrast.mean),
            **{end: _number(value) for end, value in ends.items()},
            "seeds": contrast.seeds if counted else 0,
            "differences": None if exact or _number(contrast.mean) is None else [*map(_number, contrast.differences)],
            "item_se": _number(contrast.item_se) or None,
            "method": method(facts) if counted else None,
            "scale": scale,
            "verdict": last.verdict,
            "size": size_of(one),
            "untested": facts.untested or None,
            "reason": last.reason,
        })  # fmt: skip
    return rows
