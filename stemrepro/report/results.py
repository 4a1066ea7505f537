"""What every analysis does besides drawing: judge the recipe's claims and write results/<scale>/<recipe>/."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.claims import Contrast, Evidence, judge
from stemrepro.files import atomic_write, digest, write_json
from stemrepro.provenance import provenance
from stemrepro.recipe import Claim, Recipe
from stemrepro.report.style import footer, render, settle

Arms = dict[str, Any]
"""What was measured of each arm: ArmScores (losses) or ArmItems (benchmarks)."""


def evidence_for(claim: Claim, arms: Arms, contrast: Callable, failed_precondition: Callable) -> Evidence:
    """Collects what the rule needs to know of a claim.

    Args:
        contrast: (arms, first, second, metric) -> Contrast.
        failed_precondition: (claim, arms) -> why it can't be tested, or None.
    """
    pairs = list(itertools.pairwise(claim.arms))
    contrasts: tuple[Contrast, ...] = tuple(contrast(arms, high, low, claim.metric) for high, low in pairs)
    return Evidence(
        kind=claim.kind,
        contrasts=contrasts,
        smallest_effect=claim.smallest_effect,
        paper_effect=claim.paper.value if claim.paper else None,
        transportable=claim.transportable,
        primary=claim.primary,
        failed_precondition=failed_precondition(claim, arms),
    )


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def verdicts(recipe: Recipe, arms: Arms, scale: str, measure: ModuleType) -> list[dict]:
    """Judges all claims of a recipe; one row a claim, as verdicts.json holds them.

    Args:
        measure: stemrepro.report.scores or stemrepro.report.items, whose `contrast` and `failed_precondition` apply.
    """
    functions = (measure.contrast, measure.failed_precondition)
    evidence = [evidence_for(claim, arms, *functions) for claim in recipe.claims.values()]
    rows = []
    for (name, claim), facts, found in zip(recipe.claims.items(), evidence, judge(evidence), strict=True):
        rows.append({
            "claim": name,
            "sentence": claim.sentence,
            "primary": claim.primary,
            "kind": claim.kind,
            "metric": claim.metric,
            "unit": claim.unit,
            "arms": list(claim.arms),
            "paper": claim.paper.model_dump() if claim.paper else None,
            "smallest_effect": claim.smallest_effect,
            "ours": _number(found.ours),
            "ci_low": _number(found.ci_low),
            "ci_high": _number(found.ci_high),
            "level": round(found.level, 6),
            "seed_se": _number(found.seed_se),
            "item_se": _number(found.item_se) or None,
            "p": _number(found.p),
            "seeds": facts.seeds,
            "scale": scale,
            "verdict": found.verdict,
            "reason": found.reason,
        })  # fmt: skip
    return rows


def save(folder: Path, figure: Figure, data: pd.DataFrame, rows: list[dict], arms: Arms) -> None:
    """Writes figure.{pdf,svg,png}, data.csv and verdicts.json (equal inputs, equal bytes) and provenance.json beside."""
    params = digest({name: scores.summary["params_hash"] for name, scores in arms.items()})
    data_hash = next(iter(arms.values())).summary["data_hash"]
    seeds = "1 seed" if rows[0]["seeds"] == 1 else f"{rows[0]['seeds']} seeds"
    footer(figure, f"scale {rows[0]['scale']}, {seeds}, parameters {params}, data {data_hash}")
    settle(figure)
    for kind in ("pdf", "svg", "png"):
        atomic_write(folder / f"figure.{kind}", render(figure, kind))
    atomic_write(folder / "data.csv", data.to_csv(index=False, float_format="%.6g"))
    write_json(folder / "verdicts.json", rows)
    runs = {
        name: {"params_hash": scores.summary["params_hash"], "seeds": scores.summary["seeds"]}
        for name, scores in arms.items()
    }
    about = {"params_hash": params, "data_hash": data_hash, "runs": runs}
    write_json(folder / "provenance.json", provenance() | about)
