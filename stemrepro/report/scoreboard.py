"""The page with every claim: the paper's number beside ours, interval, seeds, verdict."""

import json
import os
from pathlib import Path

from stemrepro.claims import VERDICTS
from stemrepro.errors import UserError
from stemrepro.files import atomic_write
from stemrepro.recipe import load

MEANING = {
    "reproduced": "the effect is there, larger than what counts, and of the paper's size",
    "direction only": "the effect has the paper's sign; its size is not shown, or can't be expected at this scale",
    "contradicted": "the effect has the opposite sign, or is shown to be smaller than what counts",
    "inconclusive": "our runs can't tell",
    "not testable at this scale": "a precondition fails, whatever the contrast says",
}


def _value(row: dict) -> str:
    if row["ours"] is None:
        return "-"
    if row["ci_low"] is None:
        return f"{row['ours']:+.3f} {row['unit']}"
    return f"{row['ours']:+.3f} ({row['ci_low']:+.3f} to {row['ci_high']:+.3f}) {row['unit']}"


def _paper(row: dict) -> str:
    if not row["paper"]:
        return "not in the paper"
    return (
        f"{row['paper']['value']:+.3f} {row['paper']['unit']} ({row['paper']['confidence']}: {row['paper']['source']})"
    )


def write_scoreboard(scale: str, results: Path, out: Path) -> None:
    """Writes the page of one scale from its verdicts.json files.

    Raises:
        UserError: a recipe has no verdicts there.
    """
    book, rule = load(), os.path.relpath("docs/verdicts.md", out.parent)
    lines = [f"# Scoreboard: scale `{scale}`", ""]
    lines += [
        "Written by the pipeline. A row is a claim; its effect is signed so that the claim makes it positive; brackets hold",
        f"the interval after the correction for multiple claims ([how]({rule})).",
        "",
        "| verdict | means |",
        "|---|---|",
        *(f"| **{verdict}** | {MEANING[verdict]} |" for verdict in VERDICTS),
    ]
    for name, recipe in book.recipes.items():
        path = results / scale / name / "verdicts.json"
        if not path.exists():
            raise UserError(f"{path} is missing; run 'dvc repro' for scale '{scale}'")
        rows = json.loads(path.read_text())
        figure = os.path.relpath(results / scale / name / "figure.png", out.parent)
        lines += ["", f"## {name}: {recipe.title}", "", f"Paper: {recipe.paper_item}.", "", f"![{name}]({figure})", ""]
        lines += ["| claim | paper | ours | seeds | verdict | why |", "|---|---|---|--:|---|---|"]
        for row in sorted(rows, key=lambda row: not row["primary"]):
            mark = " (primary)" if row["primary"] else ""
            arms = " - ".join(row["arms"])
            lines.append(
                f"| {row['sentence']}{mark}<br>`{row['claim']}`: {arms}, {row['metric']} | {_paper(row)} | {_value(row)} "
                f"| {row['seeds']} | **{row['verdict']}** | {row['reason']} |"
            )
        split = [
            f"{row['claim']}: seeds {row['seed_se']:.4f}, items {row['item_se']:.4f}"
            for row in rows
            if row["item_se"] and row["seed_se"]
        ]
        if split:
            lines += [
                "",
                "Standard errors between seeds and between items (documents, questions), apart: "
                + "; ".join(split)
                + ".",
            ]
    atomic_write(out, "\n".join(lines) + "\n")
