"""A recipe's claims: what was measured, and what the rule makes of it.

Claims are judged together because their levels depend on the whole family.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from stemrepro.config.recipe import Claim, Estimate
from stemrepro.measures.base import Measure, failure
from stemrepro.measures.inputs import Inputs
from stemrepro.verdicts.contrast import Contrast, Unmeasured
from stemrepro.verdicts.robustness import ROBUSTNESS
from stemrepro.verdicts.rule import Evidence, Judgement, judge


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured and what the rule makes of it."""

    claim: Claim
    evidence: Evidence
    result: Judgement


def judged(inputs: Inputs, measure: Measure) -> dict[str, Judged]:
    """Return all claims of a recipe, by name."""
    claims = inputs.recipe.claims
    evidence = [evidence_for(claim, measure) for claim in claims.values()]
    rows = zip(claims.items(), evidence, judge(evidence), strict=True)
    return {name: Judged(claim, facts, result) for (name, claim), facts, result in rows}


def contrasts(asked: Claim | Estimate, measure: Measure) -> tuple[Contrast, ...]:
    """Return the contrasts of a claim or an estimate: one, or one per adjacent pair of an ordering.

    Without arms it has one contrast that holds its number.
    """
    if not asked.arms:
        return (Contrast(np.array([measure.value(asked.metric)])),)
    return tuple(measure.contrast(high, low, asked.metric) for high, low in itertools.pairwise(asked.arms))


def robustness_contrasts(claim: Claim, measure: Measure) -> dict[str, tuple[Contrast, ...]]:
    """Return the same contrasts in other settings, by name; a setting is left out where one contrast is missing."""
    pairs = [measure.robustness(high, low, claim.metric) for high, low in itertools.pairwise(claim.arms)]
    return {
        name: tuple(pair[name] for pair in pairs)
        for name in ROBUSTNESS
        if pairs and all(name in pair for pair in pairs)
    }


def evidence_for(claim: Claim, measure: Measure) -> Evidence:
    """Collect what the rule needs to know of a claim."""
    failed = unmeasured = None
    common, robustness = (Contrast(np.array([math.nan])),), {}
    try:
        failed = failure(measure, claim)
        common = contrasts(claim, measure)
        robustness = robustness_contrasts(claim, measure)
    except Unmeasured as reason:
        unmeasured = str(reason)
    lost = max(int(np.isnan(contrast.differences).sum()) for contrast in common)
    if lost and not unmeasured:
        unmeasured = f"in {lost} of {len(common[0].differences)} seeds the contrast has no value"
    return Evidence(
        kind=claim.kind,
        contrasts=common,
        smallest_effect=claim.smallest_effect,
        paper_effect=claim.paper.value if claim.paper else None,
        expected=claim.expected,
        primary=claim.primary,
        control=claim.origin == "control",
        failed_precondition=failed and failed[0],
        untested=failed[1] if failed else "",
        asked="; ".join(measure.preconditions[name].words for name in claim.preconditions),
        unmeasured=unmeasured,
        robustness=robustness,
    )
