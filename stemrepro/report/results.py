"""What is written to results/<scale>/<recipe>/: figures, their data, and verdicts."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from stemrepro.common.files import atomic_write, digest, json_text, read_json, sha256, write_json
from stemrepro.common.provenance import provenance
from stemrepro.measures.base import Measure
from stemrepro.measures.inputs import Inputs
from stemrepro.report.page_parts import VERDICTS
from stemrepro.report.style import footer, render, settle
from stemrepro.verdicts.contrast import Contrast


def mean_row(panel: str, what: str, x: object, contrast: Contrast, unit: float = 1.0) -> dict:
    """Return a line of data.csv: a mean with its 95% interval, over `unit`, and the number of its values.

    Where every seed of a share is at 0 or 100%, its interval ends there.
    """
    mean, (low, high) = contrast.mean, contrast.interval(0.05)
    row = {"panel": panel, "what": what, "x": x, "value": mean / unit}
    return row | {"ci_low": min(low, mean) / unit, "ci_high": max(high, mean) / unit, "count": contrast.seeds}


def run_inputs(inputs: Inputs, measure: Measure) -> dict:
    """Return hashes of what a result follows from: settings and data of the runs, their seeds, and counts in the text.

    Where nothing was trained, they are the paper's numbers and the published shapes.
    """
    summaries = {name: scores.summary for name, scores in measure.runs().items()}
    runs = {name: {key: summary[key] for key in ("params_hash", "seeds")} for name, summary in summaries.items()}
    if runs:
        hashes = digest({name: run["params_hash"] for name, run in runs.items()})
        about = {"params_hash": hashes, "data_hash": next(iter(summaries.values()))["data_hash"], "runs": runs}
    elif measure.study:
        tables = [sha256(path) for path in sorted((inputs.folder / measure.study).glob("*.parquet"))]
        about = {"params_hash": digest(inputs.scale.published), "data_hash": digest(tables)}
    else:
        shapes = {name: shape.model_dump() for name, shape in inputs.catalog.shapes.items()}
        about = {"params_hash": digest([list(inputs.catalog.paper.listing()), shapes]), "data_hash": None}
    if measure.reads_text:
        about["counts"] = {path.stem: sha256(path)[:12] for path in sorted((inputs.folder / "text").glob("*.csv"))}
    if runs and (made := inputs.folder / "made.json").exists():
        about["trained"] = read_json(made)
    return about


def save(
    folder: Path, scale: str, figures: dict[str, Figure], data: pd.DataFrame, rows: list[dict], inputs: dict,
    formats: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Write each figure as <name>.svg, data.csv, verdicts.json, and provenance.json where one of these has changed.

    Equal inputs give equal bytes.

    Args:
        folder: results/<scale>/<recipe>.
        figures: by name; what they draw is `data`.
        rows: of verdicts.json.
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
    files[folder / VERDICTS] = json_text(rows).encode()
    made = folder / "provenance.json"
    same = made.exists() and all(path.exists() and path.read_bytes() == content for path, content in files.items())
    for path, content in files.items():
        atomic_write(path, content)
    if not same:
        write_json(made, provenance() | inputs)
