"""How far long work is and how long it will take: tqdm's bar on a terminal, a line a minute in a log."""

import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

from tqdm import tqdm

BAR = "{desc}: {percentage:3.0f}%|{bar:10}| {elapsed} so far, {remaining} left{postfix}"
LINE = "{desc}: {percentage:.0f}%, {remaining} left{postfix}"
STEADY: dict[str, Any] = {"miniters": 0, "smoothing": 0, "delay": 1e-9, "leave": False, "disable": False}
"""TQDM_DISABLE is for bars of others."""
Item = TypeVar("Item")


class _Log:
    """A stderr that is no terminal: each state of a bar is a line."""

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=sys.stderr)

    def flush(self) -> None:
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """Return seconds in words: "40 s", "4 min", "2 h 05 min", "12 days", "10,800 years"."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    if (days := seconds / 86_400) >= 2:
        return f"{days:.0f} days" if days < 730 else f"{float(f'{days / 365.25:.3g}'):,.0f} years"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def bar(what: str, total: float | None, done: float = 0) -> tqdm:
    """Return a bar on stderr that goes away at its end; `total` is None where it is unknown.

    The time left follows from the mean pace, without what was done before.
    """
    terminal = sys.stderr.isatty()
    look: dict[str, Any] = (
        {"dynamic_ncols": True, "mininterval": 0.5} if terminal else {"mininterval": 60, "position": 0}
    )
    style = {"bar_format": BAR if terminal else LINE} if total else {}
    file = sys.stderr if terminal else _Log()
    return tqdm(desc=what, total=total, initial=done, file=file, **STEADY, **look, **style)


def track(items: Iterable[Item], what: str, total: float | None = None) -> Iterator[Item]:
    """Yield items under a bar; `total` is for items that have no length."""
    with bar(what, len(items) if total is None and isinstance(items, Sized) else total) as shown:
        for item in items:
            yield item
            shown.update()


class Course:
    """Tasks, as `workers.Job` has them, that run some at a time, under one bar by their cost.

    `done` more of them had nothing left to do. One that resumes may begin in its middle.
    """

    def __init__(self, what: str, tasks: Sequence[Any], done: int = 0) -> None:
        self.tasks, self.done, self.ended = list(tasks), done, 0
        self.at: dict[int, int] = {}
        self.cost = sum(task.cost for task in tasks)
        self.shown = bar(what, 1.0)

    def running(self) -> list[str]:
        """Return the names of tasks that have begun and not ended."""
        return [self.tasks[number].name for number, done in self.at.items() if done < self.tasks[number].total]

    def report(self, number: int, done: int, note: str = "") -> None:
        """Show that so many units of a task are done; those before the first report of one that resumes are no pace."""
        task = self.tasks[number]
        more = (done - self.at.get(number, 0)) * task.cost / self.cost / task.total
        if more < 0:  # reports of other processes may come late
            return
        if task.resumes and done and not self.at.get(number):
            self.shown.initial += more
        self.at[number] = done
        self.shown.n += more
        count = f"{self.done + self.ended} of {self.done + len(self.tasks)}"
        self.shown.set_postfix_str(", ".join(filter(None, (count, task.name, note))), refresh=False)
        self.shown.update(0)

    def end(self, number: int) -> None:
        """Show that a task is done."""
        self.ended += 1
        self.report(number, self.tasks[number].total)

    def close(self) -> None:
        """Take the bar away."""
        self.shown.close()
