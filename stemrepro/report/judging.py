"""The claims of a page, judged together: adjusted p and moderated variances depend on all of them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from stemrepro.report.evidence import Finding, read_evidence
from stemrepro.report.page_parts import EVIDENCE, shown
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.moderation import FEW, Prior, fitted
from stemrepro.verdicts.rule import Evidence, Judgement, judge

Group = tuple[str, str]
"""A scale and a unit; shares, whatever they are of, have the unit "logits"."""


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured and what the rule makes of it.

    `prior` is what its variance was moderated by, or None; `evidence` has the moderated one.
    """

    finding: Finding
    evidence: Evidence
    prior: Prior | None
    result: Judgement


def _group(finding: Finding, contrast: Contrast) -> Group:
    return finding.scale, finding.unit if contrast.logits is None else "logits"


def priors(evidence: list[tuple[Finding, Evidence]]) -> dict[Group, Prior]:
    """Return what all contrasts of a unit at a scale say of their variances, where they are enough to say it."""
    groups: dict[Group, list[Contrast]] = {}
    for finding, facts in evidence:
        for contrast in facts.contrasts if facts.kind != "exact" and not facts.unmeasured else ():
            groups.setdefault(_group(finding, contrast), []).append(contrast)
    fits = {group: fitted(contrasts) for group, contrasts in groups.items()}
    return {group: prior for group, prior in fits.items() if prior}


def judged(findings: Iterable[Finding]) -> list[Judged]:
    """Judge the claims of a page, in their order."""
    evidence = [(finding, finding.facts()) for finding in findings]
    known = priors(evidence)
    moderated, used = [], []
    for finding, facts in evidence:
        prior = known.get(_group(finding, facts.contrasts[0])) if facts.kind != "exact" else None
        prior = prior if prior and facts.seeds < FEW and not facts.unmeasured else None
        used.append(prior)
        pairs = tuple(map(prior.moderated, facts.contrasts)) if prior else facts.contrasts
        moderated.append(replace(facts, contrasts=pairs))
    rows = zip(evidence, moderated, used, judge(moderated), strict=True)
    return [Judged(finding, facts, prior, result) for (finding, _), facts, prior, result in rows]


def judged_page(scale: str, results: Path) -> dict[tuple[str, str], list[Judged]]:
    """Judge all recipes of a scale's page that have evidence: {(recipe, scale): claims}.

    Raises:
        UserError: the scale is unknown, or evidence is damaged.
    """
    places = [(name, at) for name, at in shown(scale, results, EVIDENCE) if (results / at / name / EVIDENCE).exists()]
    findings = {place: read_evidence(results / place[1] / place[0] / EVIDENCE) for place in places}
    claims = iter(judged(finding for members in findings.values() for finding in members))
    return {place: [next(claims) for _ in members] for place, members in findings.items()}
