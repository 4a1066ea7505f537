"""What every analysis does next to drawing: it judges the recipe's claims and writes results/<scale>/<recipe>/."""

import math
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.common.files import atomic_write, digest, sha256, write_json
from stemrepro.common.provenance import provenance
from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.report.judging import Judged
from stemrepro.report.style import alone, footer, render, settle
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.robustness import OFFICIAL_INIT, OWN_RATES, same_sign
from stemrepro.verdicts.rule import Evidence


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _mean(facts: Evidence, setting: str) -> float | None:
    """Return the mean of the weakest contrast in a setting; None where it wasn't measured."""
    return _number(min(c.mean for c in facts.robustness[setting])) if setting in facts.robustness else None


def _at_official_init(facts: Evidence) -> dict:
    """Return two fields of a row: the effect at the official initialisation, and whether its sign is the same.

    The result is empty where the claim wasn't measured at that initialisation.
    """
    contrasts = facts.robustness.get(OFFICIAL_INIT)
    if contrasts is None:
        return {}
    same = same_sign(facts.contrasts, contrasts, facts.null_band)
    return {"official_init": _mean(facts, OFFICIAL_INIT), "official_init_same_sign": same}


def by_seed(facts: Evidence) -> list[float | None]:
    """Return the differences whose mean is the claim's number, by seed; an ordering has those of its weakest pair."""
    weakest = min(facts.contrasts, key=lambda contrast: contrast.mean)
    return [_number(value) for value in weakest.differences]


def verdict_rows(scale: str, claims: dict[str, Judged]) -> list[dict]:
    """Return one row per claim, as verdicts.json holds them."""
    rows = []
    for name, judged in claims.items():
        claim, facts, result = judged.claim, judged.evidence, judged.result
        exact = claim.kind == "exact"
        rows.append({
            "claim": name,
            "sentence": claim.sentence,
            "origin": claim.origin,
            "primary": claim.primary,
            "kind": claim.kind,
            "metric": claim.metric,
            "unit": claim.unit,
            "arms": list(claim.arms),
            "paper": claim.paper.model_dump() if claim.paper else None,
            "expected": claim.expected,
            "smallest_effect": claim.smallest_effect,
            "ours": _number(result.ours),
            "ci_low": _number(result.ci_low),
            "ci_high": _number(result.ci_high),
            "level": None if exact else round(result.level, 6),
            "tuned": _mean(facts, OWN_RATES),
            "seed_se": _number(result.seed_se),
            "item_se": _number(result.item_se) or None,
            "p": None if exact else _number(result.p),
            "seeds": 0 if exact or facts.unmeasured else facts.seeds,
            "differences": None if exact or result.ours is None else by_seed(facts),
            "scale": scale,
            "verdict": result.verdict,
            "untested": facts.untested or None,
            "reason": result.reason,
            **_at_official_init(facts),
        })  # fmt: skip
    return rows


def mean_row(panel: str, what: str, x: object, contrast: Contrast) -> dict:
    """Return a line of data.csv: a mean with its 95% interval and the number of its values."""
    low, high = contrast.interval(0.05)
    return {
        "panel": panel,
        "what": what,
        "x": x,
        "value": contrast.mean,
        "ci_low": low,
        "ci_high": high,
        "count": len(contrast.differences),
    }


def run_inputs(inputs: Inputs, measure: Measure) -> dict:
    """Return hashes of what a result follows from.

    These are the settings and data of the runs, with the seeds of each arm, and the counts in the text. Where nothing
    was trained, they are the paper's numbers and the published shapes.
    """
    summaries = {name: scores.summary for name, scores in measure.runs().items()}
    runs = {name: {key: summary[key] for key in ("params_hash", "seeds")} for name, summary in summaries.items()}
    if runs:
        hashes = digest({name: run["params_hash"] for name, run in runs.items()})
        about = {"params_hash": hashes, "data_hash": next(iter(summaries.values()))["data_hash"], "runs": runs}
    else:
        shapes = {name: shape.model_dump() for name, shape in inputs.catalog.shapes.items()}
        about = {"params_hash": digest([list(inputs.catalog.paper.listing()), shapes]), "data_hash": None}
    if measure.reads_text:
        about["counts"] = {path.stem: sha256(path)[:12] for path in sorted((inputs.folder / "text").glob("*.csv"))}
    return about


def save_panels(folder: Path, figure: Figure) -> None:
    """Write every panel of a figure alone as <letter>.svg, for narrow screens.

    Files of panels that are gone are removed.
    """
    letters = set()
    for letter in alone(figure):
        atomic_write(folder / f"{letter}.svg", render(figure, "svg"))
        letters.add(letter)
    for path in folder.glob("*.svg"):
        if path.stem not in letters:
            path.unlink()


def save(folder: Path, figures: dict[str, Figure], data: pd.DataFrame, rows: list[dict], inputs: dict) -> None:
    """Write each figure as <name>.{pdf,svg,png}, panels/, data.csv, verdicts.json and provenance.json.

    Equal inputs give equal bytes of all files except provenance.json.

    Args:
        folder: results/<scale>/<recipe>.
        figures: by name.
        data: what the figures draw, as data.csv.
        rows: of verdicts.json.
        inputs: what `run_inputs` returns.
    """
    seeds = sorted({run["seeds"] for run in inputs.get("runs", {}).values()})
    words = {0: "no runs", 1: f"{seeds[0] if seeds else 0} seed{'' if seeds == [1] else 's'}"}
    counted = words.get(len(seeds)) or f"{seeds[0]} to {seeds[-1]} seeds"
    parts = [f"scale {folder.parent.name}", counted, f"parameters {inputs['params_hash']}"]
    for name, figure in figures.items():
        footer(figure, ", ".join([*parts, f"data {inputs['data_hash']}"] if inputs["data_hash"] else parts))
        settle(figure)
        for kind in ("pdf", "svg", "png"):
            atomic_write(folder / f"{name}.{kind}", render(figure, kind))
    save_panels(folder / "panels", figures["figure"])
    atomic_write(folder / "data.csv", data.to_csv(index=False, float_format="%.6g"))
    write_json(folder / "verdicts.json", rows)
    write_json(folder / "provenance.json", provenance() | inputs)
