"""Which recipes stand on the page of a scale, and pictures as a page shows them."""

import os
import re
from pathlib import Path

from stemrepro.measures.catalog import load

VERDICTS = "verdicts.json"
"""File of results/<scale>/<recipe>/: its claims, measured and judged."""

LEADERBOARD = "leaderboard"
"""Measure of recipes whose methods are ranked in a table next to the page."""


def shown(scale: str, results: Path) -> list[tuple[str, str]]:
    """Return the recipes of a scale's page, each with the scale at which it was run.

    These are the recipes of the scale itself, and those of scales that share the page and have verdicts.

    Raises:
        UserError: the scale is unknown.
    """
    catalog = load()
    page = catalog.scale(scale).scoreboard
    scales = [scale, *(name for name, other in catalog.scales.items() if other.scoreboard == page and name != scale)]
    return [
        (name, at)
        for name in catalog.recipes
        for at in scales
        if name in catalog.at(at).recipes and (at == scale or (results / at / name / VERDICTS).exists())
    ]


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def image(path: Path, out: Path) -> dict:
    """Return where an SVG is from the page's folder, with its size in points."""
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', path.read_text(encoding="utf-8"))
    return {
        "path": os.path.relpath(path, out),
        "width": round(float(size[1])),
        "height": round(float(size[2])),
    }
