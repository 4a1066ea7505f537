"""A recipe's claims, measured and judged from its scores alone, as rows of verdicts.json."""

import math
from typing import Any, NamedTuple

import numpy as np

from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Claim, Estimate, metric_text
from stemrepro.measures.base import ON_SCALE, call, failure, levels_of, requirement
from stemrepro.measures.metric import words_of
from stemrepro.measures.scores import Scores
from stemrepro.verdicts.effect import Effect, Unmeasured, Untested
from stemrepro.verdicts.rule import DECIDES, NOT_ATTEMPTED, NOT_TESTED, PRINTED, Evidence, Step, size, steps

METHOD = "t over seeds"
OWN_SETTINGS = "at own studied settings"


class Judged(NamedTuple):
    """A claim with what was measured and the steps to its verdict, which the last one has."""

    name: str
    claim: Claim
    evidence: Evidence
    steps: list[Step]


def effect_of(asked: Claim | Estimate, scores: Scores) -> Effect:
    """Return the effect of a claim or an estimate in the common setting; without arms it holds the one number."""
    read = call(asked.metric, scores.catalog, scores.recipe)
    if not asked.arms:
        return Effect(np.array([read.value(scores)]))
    return read.effect(scores, *asked.arms)


def evidence_for(claim: Claim, scores: Scores) -> Evidence:
    """Collect what the rule needs to know of a claim: at own studied settings where both arms have them."""
    read, failed, unmeasured = call(claim.metric, scores.catalog, scores.recipe), None, None
    conditions = [requirement(name, claim, scores.catalog, scores.recipe) for name in claim.requires]
    asked = [words_of(condition.function) for condition in conditions]
    effect, own = Effect(np.array([math.nan])), None
    try:
        failed = failure(scores, claim)
        asked = [ON_SCALE, *asked] if levels_of(read, scores) else asked
        common = effect_of(claim, scores)
        own = read.own(scores, *claim.arms) if claim.arms else None
        effect = common if own is None else own
    except Untested as reason:
        failed = str(reason), NOT_ATTEMPTED
    except Unmeasured as reason:
        unmeasured = str(reason)
    if (lost := int(np.isnan(effect.differences).sum())) and not unmeasured:
        unmeasured = f"in {lost} of {effect.seeds} seeds the contrast has no value"
    return Evidence(
        kind=claim.kind,
        effect=effect,
        smallest_effect=claim.smallest_effect,
        paper_effect=claim.paper.value if isinstance(claim.paper, PaperNumber) else None,
        expected=claim.expected,
        failed_precondition=failed and failed[0],
        untested=failed[1] if failed else "",
        asked="; ".join(asked),
        unmeasured=unmeasured,
        own_settings=own is not None,
    )


def judged(scores: Scores, only: str | None = None) -> list[Judged]:
    """Judge the claims of a recipe, or one of them."""
    claims = {name: claim for name, claim in scores.recipe.claims.items() if only in (None, name)}
    evidence = {name: evidence_for(claim, scores) for name, claim in claims.items()}
    return [Judged(name, claims[name], facts, steps(facts)) for name, facts in evidence.items()]


def method(facts: Evidence) -> str:
    """Return how a claim's interval was formed, in words."""
    words = f"t over {facts.effect.over}" if facts.effect.paired else f"{METHOD}, not paired (Welch)"
    words += "" if facts.effect.logits is None else ", on logits"
    return f"{words}, {OWN_SETTINGS}" if facts.own_settings else words


def size_of(one: Judged) -> str | None:
    """Return what is said of the size of a result of the paper's; None where there is no effect to have one."""
    claim, facts = one.claim, one.evidence
    if claim.origin != "paper" or claim.kind != "greater" or one.steps[-1].verdict == NOT_TESTED:
        return None
    return size(facts, claim.comparable) if math.isfinite(facts.effect.interval(PRINTED)[0]) else None


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def verdict_rows(scale: str, claims: list[Judged]) -> list[dict[str, Any]]:
    """Return one row per claim, as verdicts.json holds them."""
    return [_row(scale, one) for one in claims]


def _row(scale: str, one: Judged) -> dict[str, Any]:
    facts, effect, last = one.evidence, one.evidence.effect, one.steps[-1]
    exact, mean = facts.kind == "exact", _number(effect.mean)
    counted = not exact and not facts.unmeasured
    (low, high), (wide_low, wide_high) = effect.interval(PRINTED), effect.interval(DECIDES)
    ends = {"ci_low": low, "ci_high": high, "ci99_low": wide_low, "ci99_high": wide_high}
    return {
        "claim": one.name,
        **one.claim.model_dump(mode="json", exclude={"requires", "comparable"}),
        "metric": metric_text(one.claim.metric),
        "ours": mean,
        **{end: _number(value) for end, value in ends.items()},
        "seeds": effect.seeds if counted else 0,
        "differences": None if exact or mean is None else [*map(_number, effect.differences)],
        "item_se": _number(effect.item_se) or None,
        "method": method(facts) if counted else None,
        "scale": scale,
        "verdict": last.verdict,
        "size": size_of(one),
        "untested": facts.untested or None,
        "reason": last.reason,
    }
