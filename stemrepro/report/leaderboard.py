"""RECIPE.csv and RECIPE.md of a recipe with the measure `leaderboard`: one row for each track and method."""

from pathlib import Path
from typing import Any

import pandas as pd

from stemrepro.common.files import atomic_write, damaged
from stemrepro.common.paths import SCORES
from stemrepro.config.address import Address
from stemrepro.config.arm import run_settings
from stemrepro.config.catalog import Catalog
from stemrepro.measures.catalog import load
from stemrepro.measures.leaderboard import FLOPS, SHAPES, size, tracks
from stemrepro.measures.scores import Scores
from stemrepro.report.page_parts import LEADERBOARD, cell, folder_of, shown

RANKED = ("rank", "best rank", "worst rank", "ahead of the next", "lead")
COSTS = ("shape", "parameters", "active parameters", "FLOPs", "bytes of rows", "step time")
NAMES = {"ahead of the next": "ahead", "lead": "lead_percent"}
NAMES |= {"FLOPs": "flops_per_token", "bytes of rows": "row_bytes_per_token"}
COLUMNS = {panel: NAMES.get(panel, panel.replace(" ", "_")) for panel in (*RANKED, *COSTS)}
"""Panels of data.csv, and their columns."""
FOUND = ("rank", "method", "published in", "loss below dense's", "ahead of the next")
HEAD = (*FOUND, "d_ff / width", "parameters", "active", "FLOPs a token", "bytes of rows", "step time", "seeds")
MORE = {"time": " A method whose step takes longer reads fewer tokens."}
INTRODUCTION = f"""# {{title}} Dense: {{size}}

This page compares ways to give each token its own parameters. All methods use the same text and seeds.
In every table but *Equal time* all methods read the same number of tokens.
Each method has the settings of its own study.
A *control* isolates one part of a method; without a study it has the settings of this method, or dense's.
How they are ranked and tuned, what the table can't say, and how to enter a method: [the rules](../docs/leaderboard.md).
Gain against the bytes of rows that a token reads, and ranks on three tracks: [figure]({{folder}}/figure.svg).
As numbers: [{{name}}.csv]({{name}}.csv). Commit, machine and hashes: `{{folder}}/provenance.json`.

*Published in*: the method follows this publication, as far as the rules and its class say. The others are ours.
Engram and over-encoding read rows of two and three successive tokens, all others rows of the current token.
*Rank*: the ranks that t tests against all other methods leave open, at 95% for each method separately.
*Loss below dense's*: in % of dense's bits, with its 95% interval over seeds.
*Ahead of the next*: the probability that its loss is below that of the method in the next row.
*d_ff / width*: of the FFN. A row with less than {SHAPES[0]:g} or more than {SHAPES[1]:g} says *shape* and has no rank.
These bounds were set after the results; without them no method is alone in first place at equal parameters.
More tokens may change the order: [what the table can't say](../docs/leaderboard.md#what-the-table-cant-say).
*Active*: parameters without tables and without experts that a token doesn't use.
*Bytes of rows*: of the table rows that one token reads, at two bytes a number (`stemrepro plan` counts four).
*Step time*: over dense's, where the model was timed.
"""


def leaderboard_table(data: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """Return a row for each track and arm of a recipe's data, methods by rank and then controls."""
    data = data[data["panel"].isin(COLUMNS)]
    rows = []
    for track in data["x"].unique():
        wide = data[data["x"] == track].pivot_table(index="what", columns="panel", values="value", sort=False)
        wide = wide.reindex(columns=COLUMNS).rename(columns=COLUMNS)
        leads = data[(data["x"] == track) & (data["panel"] == "lead")].set_index("what")
        wide = wide.join(leads[["ci_low", "ci_high", "count"]].rename(columns={"count": "seeds"}))
        wide.insert(0, "track", track)
        wide.insert(1, "method", [catalog.arms[arm].label or arm for arm in wide.index])
        wide.insert(2, "source", [catalog.arms[arm].source for arm in wide.index])
        rows.append(wide.sort_values(["rank", "lead_percent"], ascending=[True, False]))
    return pd.concat(rows).rename_axis("arm").reset_index()


def ranks(table: pd.DataFrame) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each track in words, by the names of HEAD."""
    return {
        track: [dict(zip(HEAD, _words(row), strict=True)) for row in rows.to_dict("records")]
        for track, rows in table.groupby("track", sort=False)
    }


def _words(row: dict[str, Any]) -> list[str]:
    best, worst = row["best_rank"], row["worst_rank"]
    rank = f"{best:.0f}" if best == worst else f"{best:.0f} to {worst:.0f}"
    if pd.isna(row["rank"]):
        unranked = "no study" if SHAPES[0] <= row["shape"] <= SHAPES[1] else "shape"
        rank = "control" if row["method"].endswith("(control)") else unranked
    lead = "0" if row["arm"] == "dense" else f"{row['lead_percent']:.2f} ({row['ci_low']:.2f} to {row['ci_high']:.2f})"
    ahead = "" if pd.isna(row["ahead"]) else ">99%" if row["ahead"] > 0.99 else f"{100 * row['ahead']:.0f}%"
    counts = (row[name] for name in ("parameters", "active_parameters", "flops_per_token", "row_bytes_per_token"))
    time = "" if pd.isna(row["step_time"]) else f"{row['step_time']:.2f}"
    numbers = [f"{row['shape']:.1f}", *(f"{count:,.0f}" for count in counts), time, f"{row['seeds']:.0f}"]
    return [rank, row["method"].removesuffix(" (control)"), row["source"], lead, ahead, *numbers]


def track_sizes(table: pd.DataFrame, scores: Scores) -> dict[str, str]:
    """Return dense's parameters and tokens on each track in words; at equal time others see what fits."""
    sizes, dense = {}, table[table["arm"] == "dense"].set_index("track")["parameters"]
    for variant, track in tracks(scores).items():
        if track in dense.index:
            place, arm = Address(variant, "dense"), scores.catalog.arms["dense"]
            _, training = run_settings(place, arm, scores.catalog.variant(variant), scores.scale)
            sizes[track] = size(dense[track], training.tokens)
    return sizes


def leaderboard_page(table: pd.DataFrame, sizes: dict[str, str], **about: str) -> str:
    """Write the rows as Markdown, a section for each track; `about` is what INTRODUCTION asks for."""
    parts = [INTRODUCTION.format(**about)]
    for track, rows in ranks(table).items():
        told = [f"Dense: {sizes[track]}.{MORE.get(track, '')}", ""] if track in sizes else []
        lines = [f"## Equal {track}", "", *told]
        lines += [f"| {' | '.join(HEAD)} |", "|--:|---|---|" + "--:|" * (len(HEAD) - 3)]
        lines += [f"| {' | '.join(map(cell, row.values()))} |" for row in rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def write_leaderboards(scale: str | None, results: Path) -> list[Path]:
    """Write the tables of the leaderboards among a page's recipes, as far as their data are there; return the pages.

    Raises:
        UserError: data are damaged.
    """
    catalog, pages = load(), []
    for name, at in shown(scale, results):
        folder = results / at / name
        if catalog.recipes[name].measure != LEADERBOARD or not (folder / "data.csv").exists():
            continue
        try:
            table, out = leaderboard_table(pd.read_csv(folder / "data.csv"), catalog), folder_of(scale, results)
            sizes = track_sizes(table, Scores(name, catalog, at, SCORES / at))
        except (OSError, ValueError, KeyError) as error:
            raise damaged(folder / "data.csv", error) from error
        atomic_write(out / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))
        about = {"title": catalog.recipes[name].title, "name": name, "folder": folder.relative_to(out).as_posix()}
        about["size"] = sizes[FLOPS]
        atomic_write(out / f"{name}.md", leaderboard_page(table, sizes, **about))
        pages.append(out / f"{name}.md")
    return pages
