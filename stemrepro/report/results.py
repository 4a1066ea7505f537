"""What is written to results/<scale>/<recipe>/: figures, their data, and verdicts."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stemrepro.common.files import atomic_write, digest, json_text, read_json, sha256, write_json
from stemrepro.common.provenance import provenance
from stemrepro.config.paper import Paper
from stemrepro.measures import store
from stemrepro.measures.base import reads_text, study_of
from stemrepro.measures.scores import Scores
from stemrepro.report.page_parts import VERDICTS
from stemrepro.report.style import footer, render, settle
from stemrepro.verdicts.effect import Effect, Untested


def mean_row(panel: str, what: str, x: object, effect: Effect, unit: float = 1.0) -> dict[str, Any]:
    """Return a line of data.csv: a mean with its 95% interval, over `unit`, and the number of its values.

    Where every seed of a share is at 0 or 100%, its interval ends there.
    """
    mean, (low, high) = effect.mean, effect.interval(0.05)
    row = {"panel": panel, "what": what, "x": x, "value": mean / unit}
    return row | {"ci_low": min(low, mean) / unit, "ci_high": max(high, mean) / unit, "count": effect.seeds}


def window_rows(panel: str, what: str, losses: np.ndarray, tokens: float, windows: int) -> list[dict[str, Any]]:
    """Return lines of data.csv: means over so many windows of steps, at most; `x` is the tokens of their middles.

    Args:
        losses: [seeds, steps].
        tokens: of all steps.
    """
    parts = np.array_split(losses, min(windows, losses.shape[1]), axis=1)
    return [
        mean_row(panel, what, tokens * (number + 0.5) / len(parts), Effect(part.mean(axis=1)))
        for number, part in enumerate(parts)
    ]


def pick(data: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the lines whose columns have these values."""
    return data[np.logical_and.reduce([data[column] == value for column, value in values.items()])]


def or_nan(metric: Callable[..., Effect], *settings: object, **named: object) -> Effect:
    """Return what a metric gives, or NaN where the scale has nothing to measure, so that a figure has a gap there."""
    try:
        return metric(*settings, **named)
    except Untested:
        return Effect(np.array([np.nan]))


def _cells(paper: Paper) -> list[dict[str, Any]]:
    return [
        {"cell": name, "item": block.item, "title": block.title} | asdict(paper.cell(name))
        for key, block in paper.blocks.items()
        for name in (f"{key}/{row}/{column}" for row in block.rows for column in block.columns)
    ]


def run_inputs(scores: Scores) -> dict[str, Any]:
    """Return hashes of what a result follows from: settings and data of the runs, their seeds, and counts in the text.

    Where nothing was trained, they are the paper's numbers and the published shapes.
    """
    recipe, runs, data = scores.recipe, {}, []
    for address, seeds in recipe.wanted().items():
        about = store.about(scores.folder, recipe.scored()[address][0], address)
        name = address.arm if address.variant == recipe.compare_at else str(address)
        count = min(about["seeds"], next(iter(seeds.values())))
        runs[name] = {"params_hash": about["params_hash"], "seeds": count}
        data.append(about["data_hash"])
    study = study_of(recipe)
    if runs:
        hashes = digest({name: run["params_hash"] for name, run in runs.items()})
        about = {"params_hash": hashes, "data_hash": data[0], "runs": runs}
    elif study:
        tables = [sha256(path) for path in sorted((scores.folder / study).glob("*.parquet"))]
        about = {"params_hash": digest(scores.scale.published), "data_hash": digest(tables)}
    else:
        shapes = {name: shape.model_dump() for name, shape in scores.catalog.shapes.items()}
        about = {"params_hash": digest([_cells(scores.catalog.paper), shapes]), "data_hash": None}
    if reads_text(recipe):
        about["counts"] = {path.stem: sha256(path)[:12] for path in sorted((scores.folder / "text").glob("*.csv"))}
    if runs and (made := scores.folder / "made.json").exists():
        about["trained"] = read_json(made)
    return about


def save(
    folder: Path,
    scale: str,
    figures: dict[str, Figure],
    data: pd.DataFrame,
    rows: list[dict[str, Any]],
    inputs: dict[str, Any],
    formats: tuple[str, ...] = (),
    models: str = "",
) -> None:
    """Write each figure as <name>.svg, data.csv, verdicts.json, and provenance.json where one of these has changed.

    Equal inputs give equal bytes.

    Args:
        folder: results/<scale>/<recipe>.
        figures: by name; what they draw is `data`.
        rows: of verdicts.json.
        inputs: what `run_inputs` returns.
        formats: "pdf" and "png" as well; git holds neither.
        models: what the footer says of the models, before scale and seeds.
    """
    seeds = sorted({run["seeds"] for run in inputs.get("runs", {}).values()})
    if seeds and "count" in data:  # arms with more seeds than are drawn say nothing of the picture
        drawn = set(data["count"].dropna().astype(int))
        seeds = sorted(drawn & set(seeds) or drawn) or seeds  # a count of anything else isn't of seeds
    words = {0: "no runs", 1: f"{seeds[0] if seeds else 0} seed{'' if seeds == [1] else 's'}"}
    counted = words.get(len(seeds)) or f"{seeds[0]} to {seeds[-1]} seeds"
    files = {}
    for name, figure in figures.items():
        footer(figure, f"{models}scale {scale}, {counted}")
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
