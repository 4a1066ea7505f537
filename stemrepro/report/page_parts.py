"""Which recipes stand on the page of a scale, and where their files are."""

from pathlib import Path

from stemrepro.measures.catalog import load

VERDICTS = "verdicts.json"
"""File of results/<scale>/<recipe>/: its claims, measured and judged."""
LEADERBOARD = "leaderboard"
"""Measure of recipes whose methods are ranked in a table next to the page."""


def scales_of(scale: str | None) -> tuple[str, ...]:
    """Return the scales that share a page, its own first; of all whose results are published for None.

    Raises:
        UserError: the scale is unknown.
    """
    catalog = load()
    page = catalog.scale(scale).scoreboard if scale else "results"
    scales = [name for name, other in catalog.scales.items() if other.scoreboard == page]
    return tuple(sorted(scales, key=lambda name: (name != scale, catalog.scales[name].named_only)))


def shown(scale: str | None, results: Path) -> list[tuple[str, str]]:
    """Return the recipes of a page, each with its scale: those of its own scale, and of others that have verdicts.

    Raises:
        UserError: the scale is unknown.
    """
    catalog, scales = load(), scales_of(scale)
    return [
        (name, at)
        for name in catalog.recipes
        for at in scales
        if name in catalog.at(at).recipes and (at == scales[0] or (results / at / name / VERDICTS).exists())
    ]


def folder_of(scale: str | None, results: Path) -> Path:
    """Return the folder of a scale's page."""
    return results / Path(load().scale(scales_of(scale)[0]).scoreboard).relative_to("results")


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")
