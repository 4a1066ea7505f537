"""What every analysis does besides drawing: judge the recipe's claims and write results/<scale>/<recipe>/."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.claims import Contrast, Evidence, judge
from stemrepro.files import atomic_write, digest, write_json
from stemrepro.provenance import provenance
from stemrepro.recipe import Claim, Recipe
from stemrepro.report.style import footer, render, settle

Arms = dict[str, Any]
"""What was measured of each arm: ArmScores (losses), ArmItems (benchmarks) or the like."""


def evidence_for(claim: Claim, arms: Arms, measure: Any) -> Evidence:
    """Collects what the rule needs to know of a claim; `measure` as in `verdicts`."""
    if claim.kind == "exact":
        contrasts = (Contrast(np.array([measure.value(arms, claim.metric)])),)
    else:
        pairs = itertools.pairwise(claim.arms)
        contrasts = tuple(measure.contrast(arms, high, low, claim.metric) for high, low in pairs)
    own = getattr(measure, "own_rate_contrast", None)  # measures of recipes without own rates have none
    pairs = itertools.pairwise(claim.arms) if own else ()
    own_rate = [own(arms, high, low, claim.metric) for high, low in pairs]
    return Evidence(
        kind=claim.kind,
        contrasts=contrasts,
        smallest_effect=claim.smallest_effect,
        paper_effect=claim.paper.value if claim.paper else None,
        transportable=claim.transportable,
        primary=claim.primary,
        failed_precondition=measure.failed_precondition(claim, arms),
        own_rate=() if None in own_rate else tuple(own_rate),
    )


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def verdicts(recipe: Recipe, arms: Arms, scale: str, measure: Any) -> list[dict]:
    """Judges all claims of a recipe; one row a claim, as verdicts.json holds them.

    Args:
        measure: a module or object (stemrepro.report.scores, stemrepro.report.items, ...) with
            contrast(arms, first, second, metric) -> Contrast, value(arms, metric) -> number of an exact claim, and
            failed_precondition(claim, arms) -> why a claim can't be tested, or None; and where arms have runs at own best
            rates own_rate_contrast(arms, first, second, metric) -> Contrast, or None.
    """
    evidence = [evidence_for(claim, arms, measure) for claim in recipe.claims.values()]
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
            "level": None if claim.kind == "exact" else round(found.level, 6),
            "own_rate": _number(min(c.mean for c in facts.own_rate)) if facts.own_rate else None,
            "seed_se": _number(found.seed_se),
            "item_se": _number(found.item_se) or None,
            "p": None if claim.kind == "exact" else _number(found.p),
            "seeds": 0 if claim.kind == "exact" else facts.seeds,
            "scale": scale,
            "verdict": found.verdict,
            "reason": found.reason,
        })  # fmt: skip
    return rows


def mean_row(panel: str, what: str, x: object, found: Contrast) -> dict:
    """A line of data.csv: a mean with its 95% interval and the number of values behind it."""
    low, high = found.interval(0.05)
    return {
        "panel": panel,
        "what": what,
        "x": x,
        "value": found.mean,
        "ci_low": low,
        "ci_high": high,
        "count": len(found.differences),
    }


def run_inputs(arms: Arms) -> dict:
    """What `save` writes of the runs behind a result: hashes of their settings and data, seeds of each arm."""
    runs = {
        name: {"params_hash": scores.summary["params_hash"], "seeds": scores.summary["seeds"]}
        for name, scores in arms.items()
    }
    params = digest({name: run["params_hash"] for name, run in runs.items()})
    return {"params_hash": params, "data_hash": next(iter(arms.values())).summary["data_hash"], "runs": runs}


def save(folder: Path, figure: Figure, data: pd.DataFrame, rows: list[dict], inputs: dict) -> None:
    """Writes figure.{pdf,svg,png}, data.csv and verdicts.json (equal inputs, equal bytes) and provenance.json beside.

    Args:
        inputs: "params_hash", "data_hash" (None where no text of ours is behind it) and whatever else belongs into
            provenance.json; `run_inputs` makes it for recipes with runs.
    """
    seeds = max(row["seeds"] for row in rows)
    words = {0: "no runs", 1: "1 seed"}.get(seeds if inputs.get("runs") else 0, f"{seeds} seeds")
    parts = [f"scale {rows[0]['scale']}", words, f"parameters {inputs['params_hash']}"]
    footer(figure, ", ".join([*parts, f"data {inputs['data_hash']}"] if inputs["data_hash"] else parts))
    settle(figure)
    for kind in ("pdf", "svg", "png"):
        atomic_write(folder / f"figure.{kind}", render(figure, kind))
    atomic_write(folder / "data.csv", data.to_csv(index=False, float_format="%.6g"))
    write_json(folder / "verdicts.json", rows)
    write_json(folder / "provenance.json", provenance() | inputs)
