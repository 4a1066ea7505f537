"""`stemrepro paper`: lists the paper's numbers and filters them."""

import csv
import io

from rich.console import Console
from rich.table import Table

from stemrepro.errors import UserError
from stemrepro.paper import Paper


def find(paper: Paper, words: list[str], confidence: str | None, missing: bool) -> list[dict]:
    """The cells that hold every word in their name, item, title, unit or source.

    Raises:
        UserError: none does.
    """
    found = [
        row
        for row in paper.listing()
        if (confidence is None or row["confidence"] == confidence)
        and (not missing or row["value"] is None)
        and all(word.lower() in " ".join(map(str, row.values())).lower() for word in words)
    ]
    if not found:
        raise UserError(f"no number of the paper matches {' '.join(words) or 'that'}; 'stemrepro paper' lists all")
    return found


def show(rows: list[dict], as_csv: bool, console: Console) -> None:
    """Prints cells as a table, or as CSV."""
    if as_csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        console.file.write(text.getvalue())
        return
    table = Table("cell", "value", "unit", "confidence", "source")
    table.columns[0].overflow, table.columns[1].justify = "fold", "right"
    for row in rows:
        value = "not found" if row["value"] is None else f"{row['value']:g}"
        table.add_row(
            row["cell"],
            value,
            row["unit"],
            "" if row["value"] is None else row["confidence"],
            f"{row['item']}; {row['source']}",
        )
    console.print(table)
    missing = sum(row["value"] is None for row in rows)
    console.print(f"{len(rows)} cells, {missing} of them not found anywhere; they are data in recipes/paper.yaml")
