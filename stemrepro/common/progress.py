"""How far long work is and how long it will take: a bar on a terminal, a line a minute in a log."""

import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Protocol, TypeVar

from tqdm import tqdm

BAR = "{desc}: {percentage:3.0f}%|{bar:10}| {elapsed} so far, {remaining} left{postfix}"
LINE = "{desc}: {percentage:.0f}%, {remaining} left{postfix}"
DRAW_SECONDS, LINE_SECONDS = 0.5, 60.0
WIDTH = 80
Item = TypeVar("Item")


class Task(Protocol):
    """A long task: `total` units, of `cost` compared with other tasks; one that resumes may begin in its middle."""

    name: str
    total: int
    cost: float
    resumes: bool


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


def bar(what: str, total: float | None, done: float = 0, lines: bool = True) -> tqdm:
    """Return a bar on stderr that goes away at its end.

    The time left follows from the mean pace, without what was done before.

    Args:
        total: None where it is unknown.
        lines: whether it is shown in a log too.
    """
    terminal = sys.stderr.isatty()
    style = {"bar_format": BAR if terminal else LINE} if total else {}
    return tqdm(
        desc=what, total=total, initial=done, file=sys.stderr if terminal else _Log(), disable=not (terminal or lines),
        dynamic_ncols=terminal, ncols=None if terminal else WIDTH,
        mininterval=DRAW_SECONDS if terminal else LINE_SECONDS,
        position=None if terminal else 0, miniters=0, smoothing=0, delay=1e-9, leave=False, **style,
    )  # fmt: skip


def track(items: Iterable[Item], what: str, total: float | None = None) -> Iterator[Item]:
    """Yield items under a bar; `total` is for items that have no length."""
    with bar(what, len(items) if total is None and isinstance(items, Sized) else total) as shown:
        for item in items:
            yield item
            shown.update()


class Course:
    """Tasks that run some at a time: one bar of all by their cost, and on a terminal one of each that runs.

    Args:
        what: names what is done to the tasks, in a word.
        done: tasks that had nothing left to do.
    """

    def __init__(self, what: str, tasks: Sequence[Task], done: int = 0) -> None:
        self.tasks, self.done = list(tasks), done
        self.ended: set[int] = set()
        self.cost = sum(task.cost for task in tasks)
        self.running: dict[int, tqdm] = {}
        self.everything = bar(what, 1.0)

    def begin(self, number: int) -> None:
        """Show a task that starts."""
        if number not in self.ended:  # reports of other processes may come late
            task = self.tasks[number]
            self.running[number] = bar(task.name, task.total, -1 if task.resumes else 0, lines=False)

    def report(self, number: int, done: int, note: str = "") -> None:
        """Show that so many units of a task are done; those before the first report of one that resumes are no pace."""
        if number in self.ended:
            return
        if number not in self.running:
            self.begin(number)
        task, shown = self.tasks[number], self.running[number]
        share = task.cost / self.cost / task.total
        if shown.n < 0:
            shown.n = shown.initial = done
            self.everything.total -= share * done
        self.everything.n += share * (done - shown.n)
        shown.n = done
        shown.set_postfix_str(note, refresh=False)
        shown.update(0)
        self.draw()

    def end(self, number: int) -> None:
        """Show that a task is done."""
        self.report(number, self.tasks[number].total)
        self.running.pop(number).close()
        self.ended.add(number)
        self.draw()

    def draw(self) -> None:
        """Show how things stand, when it is time to."""
        words = [f"{self.done + len(self.ended)} of {self.done + len(self.tasks)}"]
        if not sys.stderr.isatty():
            words += [f"{self.tasks[k].name} {max(0, shown.n) / shown.total:.0%}" for k, shown in self.running.items()]
        self.everything.set_postfix_str(", ".join(words), refresh=False)
        self.everything.update(0)

    def close(self) -> None:
        """Take all bars away."""
        for shown in (*self.running.values(), self.everything):
            shown.close()
