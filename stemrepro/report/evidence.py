"""What the runs say of a recipe's claims, and evidence.json, which holds it until the page is judged."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from stemrepro.common.errors import UserError
from stemrepro.common.files import read_json
from stemrepro.common.yaml_records import Factor, Strict, parse
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import Claim, Estimate, Origin
from stemrepro.measures.base import ON_SCALE, Measure, failure
from stemrepro.verdicts.contrast import Contrast, Unmeasured
from stemrepro.verdicts.robustness import ROBUSTNESS
from stemrepro.verdicts.rule import Evidence

AGAIN = "restore it or run 'make figures' with its SCALE"
Numbers = tuple[float | None, ...]


class Measured(Strict):
    """A contrast as evidence.json has it: the fields of stemrepro.verdicts.contrast.Contrast, null for NaN."""

    differences: Annotated[Numbers, Field(min_length=1)]
    item_se: float | None = 0.0
    item_df: float | None = Field(None, description="null for no end")
    logits: Numbers | None = None
    centre: float | None = 0.0
    spread: tuple[float | None, float] | None = None
    paired: bool = True

    def contrast(self) -> Contrast:
        """Return the contrast."""
        return Contrast(
            _array(self.differences),
            math.nan if self.item_se is None else self.item_se,
            math.inf if self.item_df is None else self.item_df,
            None if self.logits is None else _array(self.logits),
            math.nan if self.centre is None else self.centre,
            self.spread and (math.nan if self.spread[0] is None else self.spread[0], self.spread[1]),
            self.paired,
        )


class Finding(Strict):
    """A claim with what was measured, as evidence.json holds it."""

    claim: str
    sentence: str
    origin: Origin
    primary: bool
    kind: str
    metric: str
    unit: str
    arms: tuple[str, ...]
    paper: PaperNumber | None
    expected: float | None
    comparable: bool
    smallest_effect: Factor
    scale: str
    failed_precondition: str | None
    untested: str
    asked: str
    unmeasured: str | None
    contrasts: tuple[Measured, ...]
    robustness: dict[str, tuple[Measured, ...]]

    def facts(self) -> Evidence:
        """Return what the rule needs to know."""
        return Evidence(
            self.kind,
            tuple(given.contrast() for given in self.contrasts),
            self.smallest_effect,
            self.paper.value if self.paper else None,
            self.expected,
            self.primary,
            self.failed_precondition,
            self.untested,
            self.asked,
            self.unmeasured,
            {
                name: tuple(given.contrast() for given in self.robustness[name])
                for name in ROBUSTNESS
                if name in self.robustness
            },
        )


def _array(numbers: Numbers) -> np.ndarray:
    return np.array([math.nan if number is None else number for number in numbers], float)


def _number(value: float) -> float | None:
    """Return nine digits of a number, so that equal scores give equal files; None for NaN and infinity."""
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _measured(contrast: Contrast) -> dict:
    row: dict = {"differences": _numbers(contrast.differences)}
    if contrast.item_se:
        row |= {"item_se": _number(contrast.item_se), "item_df": _number(contrast.item_df)}
    if contrast.logits is not None:
        row |= {"logits": _numbers(contrast.logits), "centre": _number(contrast.centre)}
    if contrast.spread is not None:
        row["spread"] = _numbers(contrast.spread)
    return row if contrast.paired else row | {"paired": False}


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
    asked = [measure.preconditions[name].words for name in claim.preconditions]
    common, robustness = (Contrast(np.array([math.nan])),), {}
    try:
        failed = failure(measure, claim)
        asked = [ON_SCALE, *asked] if measure.levels(claim.metric) else asked
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
        failed_precondition=failed and failed[0],
        untested=failed[1] if failed else "",
        asked="; ".join(asked),
        unmeasured=unmeasured,
        robustness=robustness,
    )


def evidence_rows(scale: str, measure: Measure) -> list[dict]:
    """Return one row per claim of a recipe, as evidence.json holds them: what was measured, without a verdict."""
    rows = []
    for name, claim in measure.inputs.recipe.claims.items():
        facts = evidence_for(claim, measure)
        said = claim.model_dump(mode="json", exclude={"preconditions"})
        rows.append({
            "claim": name,
            **said,
            "scale": scale,
            "failed_precondition": facts.failed_precondition,
            "untested": facts.untested,
            "asked": facts.asked,
            "unmeasured": facts.unmeasured,
            "contrasts": [_measured(contrast) for contrast in facts.contrasts],
            "robustness": {name: [_measured(c) for c in pairs] for name, pairs in facts.robustness.items()},
        })  # fmt: skip
    return rows


def read_evidence(path: Path) -> list[Finding]:
    """Return the claims of an evidence.json.

    Raises:
        UserError: the file is missing or damaged, or has a claim twice.
    """
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} holds no list of claims; {AGAIN}")
    try:
        findings = [parse(Finding, row, path, f"claim '{row.get('claim')}'", exact=True) for row in rows]
    except UserError as error:
        raise UserError(f"{error}; {AGAIN}") from error
    if len({finding.claim for finding in findings}) < len(rows):
        raise UserError(f"{path} has a claim twice; {AGAIN}")
    return findings
