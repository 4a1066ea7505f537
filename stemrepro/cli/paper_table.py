"""`stemrepro paper`: a filtered list of the paper's numbers."""

import csv
import io

from rich.console import Console

from stemrepro.common.errors import UserError, unknown
from stemrepro.config.paper import Paper


def find(paper: Paper, words: list[str], confidence: str | None, missing: bool) -> list[dict]:
    """Return the cells that hold every word in their name, item, title, unit or source.

    Raises:
        UserError: no cell does.
    """
    cells = [
        row
        for row in paper.listing()
        if (confidence is None or row["confidence"] == confidence)
        and (not missing or row["value"] is None)
        and all(word.lower() in " ".join(map(str, row.values())).lower() for word in words)
    ]
    if not cells:
        raise _nothing(paper, words)
    return cells


def _nothing(paper: Paper, words: list[str]) -> UserError:
    """Return the error for words that match no cell; it suggests the word of a cell's name nearest to the first one."""
    rows = list(paper.listing())
    text = " ".join(str(value) for row in rows for value in row.values()).lower()
    parts = dict.fromkeys(part for row in rows for part in row["cell"].split("/"))
    for word in map(str.lower, words):
        if word not in text:
            return unknown("word", word, parts, f"{paper.file}")
    return UserError(f"no cell of the paper matches {' '.join(words) or 'that'}; 'stemrepro paper' lists all")


def show(rows: list[dict], as_csv: bool, console: Console) -> None:
    """Print cells below what they share, or as CSV."""
    if as_csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        console.file.write(text.getvalue())
        return
    width = max(len(row["cell"]) for row in rows)
    heading = ""
    for row in rows:  # what many cells share is printed once, above them
        confidence = "" if row["value"] is None else f" ({row['confidence']})"
        if heading != (heading := f"{row['item']}; {row['source']}{confidence}"):
            console.print(f"\n{heading}", markup=False, highlight=False)
        value = "not found" if row["value"] is None else f"{row['value']:g}"
        line = f"  {row['cell']:{width}}  {value:>9} {row['unit']}"
        console.print(line.rstrip(), markup=False, highlight=False)
    missing = sum(row["value"] is None for row in rows)
    console.print(f"\n{len(rows)} cells, {missing} of them not found anywhere; they are data in recipes/paper.yaml")
