"""`stemrepro paper`: lists the paper's numbers and filters them."""

import csv
import io
from difflib import get_close_matches

from rich.console import Console

from stemrepro.common.errors import UserError
from stemrepro.config.paper import Paper


def find(paper: Paper, words: list[str], confidence: str | None, missing: bool) -> list[dict]:
    """Return the cells that hold every word in their name, item, title, unit or source.

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
        raise _nothing(paper, words)
    return found


def _nothing(paper: Paper, words: list[str]) -> UserError:
    """Return the error for words that no cell holds: the nearest word of a cell's name, where one is near."""
    cells = [row["cell"] for row in paper.listing()]
    parts = dict.fromkeys(
        [cell.partition("/")[0] for cell in cells] + [part for cell in cells for part in cell.split("/")]
    )
    near = {word: get_close_matches(word.lower(), parts, n=1) for word in words if not _held(word, cells)}
    meant = [f"'{own[0]}'" for own in near.values() if own]
    hint = f"; did you mean {' and '.join(meant)}?" if meant else ";"
    return UserError(f"no number of the paper matches {' '.join(words) or 'that'}{hint} 'stemrepro paper' lists all")


def _held(word: str, cells: list[str]) -> bool:
    return any(word.lower() in cell for cell in cells)


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
    for row in rows:  # what many cells share stands once, above them
        sure = "" if row["value"] is None else f" ({row['confidence']})"
        if heading != (heading := f"{row['item']}; {row['source']}{sure}"):
            console.print(f"\n{heading}", markup=False, highlight=False)
        value = "not found" if row["value"] is None else f"{row['value']:g}"
        line = f"  {row['cell']:{width}}  {value:>9} {row['unit']}"
        console.print(line.rstrip(), markup=False, highlight=False)
    missing = sum(row["value"] is None for row in rows)
    console.print(f"\n{len(rows)} cells, {missing} of them not found anywhere; they are data in recipes/paper.yaml")
