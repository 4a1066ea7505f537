"""An edit as a page for the terminal: before, edited and the target's own prompt side by side, then layer by layer."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stemrepro.evaluation.edit_session import Answer, EditResult

BAR = 12


def _bar(share: float, colour: str) -> str:
    filled = round(BAR * share)
    return f"[{colour}]{'█' * filled}[/{colour}]{'·' * (BAR - filled)} {100 * share:5.1f}%"


def _column(answer: Answer, colour: str) -> str:
    lines = [f"{_bar(share, colour)} {escape(word.strip() or repr(word))}" for word, share in answer.top]
    return "\n".join([*lines, "", f"[italic]{escape(answer.continuation.strip())}[/italic]"])


def show(result: EditResult, prompt: str, source: str, target: str, console: Console) -> None:
    """Print an edit; without colour where the console has none."""
    table = Table(box=box.SIMPLE, expand=True, padding=(0, 1))
    heads = {
        f"{source} (before)": "blue",
        f"{source}, reading {target}'s rows": "red",
        f"{target} (its own prompt)": "green",
    }
    for head in heads:
        table.add_column(head, ratio=1, overflow="fold")
    sides = zip((result.before, result.edited, result.aim), heads.values(), strict=True)
    table.add_row(*(_column(answer, colour) for answer, colour in sides))
    console.print(
        f'"[bold]{escape(prompt)}[/bold]"  tokens of the names: {result.lengths[0]} and {result.lengths[1]}; scheme: {result.scheme}'
    )
    console.print(table)
    old, new = result.before.top[0][0].strip(), result.aim.top[0][0].strip()
    layers = Table("tables read otherwise", f"says '{old}'", f"says '{new}'", box=box.SIMPLE, padding=(0, 1))
    for count, (before, after) in enumerate(result.by_layer):
        layers.add_row(
            "none" if not count else f"lowest {count}" if count > 1 else "lowest",
            _bar(before, "blue"),
            _bar(after, "red"),
        )
    console.print(layers)
    console.print(
        "The prompt, its input embeddings and all weights are as before: only what tables give at the name's places is exchanged."
    )
