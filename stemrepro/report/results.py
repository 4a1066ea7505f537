"""What is written to results/<scale>/<recipe>/: figures and their data with the evidence, and later the verdicts."""

import math
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.common.files import atomic_write, digest, json_text, read_json, sha256, write_json
from stemrepro.common.provenance import provenance
from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.report.judging import Judged
from stemrepro.report.page_parts import EVIDENCE
from stemrepro.report.style import footer, render, settle
from stemrepro.report.words import PLAIN_METHOD
from stemrepro.verdicts.contrast import Contrast
from stemrepro.verdicts.moderation import Prior
from stemrepro.verdicts.robustness import OFFICIAL_INIT, OWN_RATES, same_sign
from stemrepro.verdicts.rule import NOT_TESTED, Evidence, size


def _number(value: float | None) -> float | None:
    return round(float(value), 6) if value is not None and math.isfinite(value) else None


def _p(value: float | None) -> float | None:
    """Return three digits of a p."""
    return value if value is None else float(f"{value:.3g}")


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


def method(facts: Evidence, prior: Prior | None) -> str:
    """Return how a claim's interval was formed, in words."""
    contrast = facts.contrasts[0]
    words = PLAIN_METHOD if contrast.paired else f"{PLAIN_METHOD}, arms not paired (Welch)"
    words += "" if contrast.logits is None else ", on logits"
    if prior is None:
        return words
    unit = "" if contrast.logits is None else " logits"
    return f"{words}, variance moderated by other claims' (SD {prior.sd:.2g}{unit}, {prior.df:.2g} degrees of freedom)"


def _size(judged: Judged) -> str | None:
    """Return what is said of the size of a result of the paper's; None where there is no effect to have one."""
    finding, result = judged.finding, judged.result
    if finding.origin != "paper" or finding.kind != "greater" or result.verdict == NOT_TESTED:
        return None
    return size(judged.evidence, finding.comparable) if math.isfinite(result.ours) else None


def verdict_rows(claims: list[Judged]) -> list[dict]:
    """Return one row per claim, as verdicts.json holds them."""
    rows = []
    for judged in claims:
        finding, facts, result = judged.finding, judged.evidence, judged.result
        exact, given = finding.kind == "exact", finding.model_dump(mode="json")
        told = ("claim", "sentence", "origin", "primary", "kind", "metric", "unit", "arms", "paper", "expected")
        rows.append({name: given[name] for name in told} | {
            "smallest_effect": finding.smallest_effect,
            "ours": _number(result.ours),
            "ci_low": _number(result.ci_low),
            "ci_high": _number(result.ci_high),
            "tuned": _mean(facts, OWN_RATES),
            "seed_se": _number(result.seed_se),
            "item_se": _number(result.item_se) or None,
            "method": None if exact or facts.unmeasured else method(facts, judged.prior),
            "p": _p(result.p),
            "adjusted_p": _p(result.adjusted_p),
            "other_p": _p(result.other_p),
            "adjusted_other_p": _p(result.adjusted_other_p),
            "seeds": 0 if exact or facts.unmeasured else facts.seeds,
            "differences": None if exact or _number(result.ours) is None else by_seed(facts),
            "scale": finding.scale,
            "verdict": result.verdict,
            "size": _size(judged),
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

    These are the settings and data of the runs, with the seeds of each arm, where another machine trained them, and the
    counts in the text. Where nothing was trained, they are the paper's numbers and the published shapes.
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
    if runs and (made := inputs.folder / "made.json").exists():
        about["trained"] = read_json(made)
    return about


def save(
    folder: Path,
    scale: str,
    figures: dict[str, Figure],
    data: pd.DataFrame,
    rows: list[dict],
    inputs: dict,
    formats: tuple[str, ...] = (),
) -> None:
    """Write each figure as <name>.svg, data.csv, evidence.json, and provenance.json where one of these has changed.

    Equal inputs give equal bytes.

    Args:
        folder: results/<scale>/<recipe>.
        scale: whose runs these are.
        figures: by name.
        data: what the figures draw, as data.csv.
        rows: of evidence.json.
        inputs: what `run_inputs` returns.
        formats: "pdf" and "png" as well; git holds neither.
    """
    seeds = sorted({run["seeds"] for run in inputs.get("runs", {}).values()})
    words = {0: "no runs", 1: f"{seeds[0] if seeds else 0} seed{'' if seeds == [1] else 's'}"}
    counted = words.get(len(seeds)) or f"{seeds[0]} to {seeds[-1]} seeds"
    parts = [f"scale {scale}", counted, f"hash of settings {inputs['params_hash']}"]
    files = {}
    for name, figure in figures.items():
        footer(figure, ", ".join([*parts, f"of data {inputs['data_hash']}"] if inputs["data_hash"] else parts))
        settle(figure)
        files[folder / f"{name}.svg"] = render(figure, "svg")
        for kind in formats:
            atomic_write(folder / f"{name}.{kind}", render(figure, kind))
    files[folder / "data.csv"] = data.to_csv(index=False, float_format="%.6g").encode()
    files[folder / EVIDENCE] = json_text(rows).encode()
    made = folder / "provenance.json"
    same = made.exists() and all(path.exists() and path.read_bytes() == content for path, content in files.items())
    for path, content in files.items():
        atomic_write(path, content)
    if not same:
        write_json(made, provenance() | inputs)
