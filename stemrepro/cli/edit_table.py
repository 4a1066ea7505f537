"""An edit as a page for the terminal: before, edited and the target's prompt side by side, then layer by layer."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stemrepro.evaluation.edit_session import Answer, EditResult

BAR = 12
SURE = 0.5
UNSURE = (
    "To neither name's own prompt does the model give one word half of the probability. So it may know neither answer, "
    "and the edit shows little."
)
MOST = 8
"""Layers that are shown one by one."""
DENSE = (
    "At the name's places up-projections give what they give in the target's own prompt; a row is the mean of that "
    "over a text. STEM leaves the first layer dense, and replaces others alone. No model here was trained as STEM."
)


def _bar(share: float, colour: str, width: int = BAR) -> str:
    filled = round(width * share)
    return f"[{colour}]{'█' * filled}[/{colour}]{'·' * (width - filled)} {100 * share:5.1f}%"


def _column(answer: Answer, colour: str, width: int) -> str:
    lines = [f"{_bar(share, colour, width)} {escape(word.strip() or repr(word))}" for word, share in answer.top]
    return "\n".join([*lines, "", f"[italic]{escape(answer.continuation.strip())}[/italic]"])


def show(result: EditResult, prompt: str, source: str, target: str, console: Console) -> None:
    """Print an edit; without colour where the console has none."""
    sides = {f"{source} (before)": (result.before, "blue")}
    if result.first:
        sides[f"{source}, {target}'s W_u x in the first layer alone"] = (result.first, "red")
        sides[f"{source}, {target}'s W_u x in all other layers"] = (result.edited, "red")
    else:
        sides[f"{source}, reading {target}'s rows"] = (result.edited, "red")
    sides[f"{target} (its own prompt)"] = (result.aim, "green")
    table = Table(box=box.SIMPLE, expand=True, padding=(0, 1))
    for head in sides:
        table.add_column(head, ratio=1, overflow="fold")
    width = BAR if len(sides) == 3 else BAR // 2
    table.add_row(*(_column(*side, width) for side in sides.values()))
    lengths = f"tokens of the names: {result.lengths[0]} and {result.lengths[1]}"
    console.print(f'"[bold]{escape(prompt)}[/bold]"  {lengths}; scheme: {result.scheme}')
    console.print(table)
    old, new = result.before.top[0][0].strip(), result.aim.top[0][0].strip()
    head = "layers with exchanged W_u x" if result.first else "tables with exchanged rows"
    layers = Table(head, f"says '{escape(old)}'", f"says '{escape(new)}'", box=box.SIMPLE, padding=(0, 1))
    most = len(result.by_layer) - 1
    for count, (before, after) in enumerate(result.by_layer):
        if most > MOST and count & (count - 1) and count < most:
            continue  # of many layers the powers of two
        which = "none" if not count else f"lowest {count}" if count > 1 else "lowest"
        layers.add_row(which, _bar(before, "blue"), _bar(after, "red"))
    console.print(layers)
    if max(result.before.top[0][1], result.aim.top[0][1]) < SURE:
        console.print(UNSURE, style="yellow")
    console.print("The prompt, its input embeddings and all weights are as before.")
    console.print(DENSE if result.first else "Only the rows that tables give at the name's places are exchanged.")
