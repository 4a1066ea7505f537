"""How far long work is and how long it will take yet: bars on a terminal, a line a minute anywhere else (a log, CI, nohup).

Where no cursor can be moved rich draws nothing before the end, and a bar that goes away then is never seen; so the lines are ours.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

LINE_SECONDS = 60.0
DRAW_SECONDS = 0.5
MOST_NAMED = 4
"""Tasks in flight that a line tells of."""
Item = TypeVar("Item")


class Task(Protocol):
    """Something that takes its time: `total` units of its own, and what it costs beside the others."""

    name: str
    total: int
    cost: float
    resumes: bool


@dataclass(frozen=True)
class Piece:
    """A task that is done in one piece."""

    name: str
    total: int = 1
    cost: float = 1.0
    resumes: bool = False


def duration(seconds: float) -> str:
    """Seconds in words: "40 s", "4 min", "2 h 05 min", "12 days", "10,800 years"."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    if (days := seconds / 86_400) >= 2:
        return f"{days:.0f} days" if days < 730 else f"{float(f'{days / 365.25:.3g}'):,.0f} years"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


class Course:
    """Tasks that run some at a time: how far each is, and how long all of them will take yet.

    The time left is the work left at the pace of the tasks seen so far, so it is known before any of them has ended. Work is the share
    of a task that is done times its cost. Where a task that resumes began is known from its first report only; what lies before it
    isn't counted.

    Args:
        what: is done to the tasks, in a word.
        side: how many run at a time.
        unit: of the tasks' totals, in the plural; "" for shares alone.
        done: tasks that had nothing left to do.
    """

    def __init__(
        self,
        what: str,
        tasks: Sequence[Task],
        side: int = 1,
        unit: str = "",
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.tasks, self.side, self.unit, self.before, self.clock = (
            what,
            list(tasks),
            side,
            unit,
            done,
            clock,
        )
        # Lists of fixed lengths: another thread reads them while this one writes.
        self.first: list[tuple[int, float] | None] = [None] * len(self.tasks)
        self.last: list[tuple[int, float] | None] = [None] * len(self.tasks)
        self.notes = [""] * len(self.tasks)
        self.running = [False] * len(self.tasks)
        self.ended = [False] * len(self.tasks)

    def begin(self, number: int) -> None:
        """A task starts."""
        if self.ended[number]:  # reports of other processes may come late
            return
        self.running[number] = True
        if not self.tasks[number].resumes:
            self.first[number] = self.last[number] = (0, self.clock())

    def report(self, number: int, done: int, note: str = "") -> None:
        """So many units of a task are done."""
        if self.ended[number]:
            return
        now = self.clock()
        self.first[number] = self.first[number] or (done, now)
        self.last[number], self.notes[number] = (done, now), note

    def end(self, number: int) -> None:
        """A task is done."""
        self.report(number, self.tasks[number].total)
        self.running[number], self.ended[number] = False, True

    def units(self, number: int) -> int:
        """Units of a task that are done."""
        last = self.last[number]
        return last[0] if last else 0

    def left(self) -> float | None:
        """Seconds until all is done; None while nothing is known of the pace."""
        gained = spent = 0.0
        rest = []
        for n, task in enumerate(self.tasks):
            if (first := self.first[n]) and (last := self.last[n]):
                gained += task.cost * (last[0] - first[0]) / task.total
                spent += last[1] - first[1]
            rest.append(task.cost * (1 - self.units(n) / task.total))
        if gained <= 0 or spent <= 0:
            return None
        unended = sum(share > 0 for share in rest)
        return spent / gained * max(sum(rest) / max(1, min(self.side, unended)), *rest)

    def left_in_words(self) -> str:
        """ "about 4 min left", "" while that isn't known."""
        left = self.left()
        return "" if left is None else f"about {duration(left)} left"

    def _share(self, number: int) -> str:
        done, total = self.units(number), self.tasks[number].total
        about = [f"{done:,} of {total:,}"] if self.unit else [f"{100 * done / total:.0f}%"] if total > 1 else []
        return f" ({', '.join([*about, self.notes[number]] if self.notes[number] else about)})" if about else ""

    def line(self) -> str:
        """Return all that is known, in one line."""
        named = [f"{self.tasks[n].name}{self._share(n)}" for n, runs in enumerate(self.running) if runs]
        more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        done, total = sum(map(self.units, range(len(self.tasks)))), sum(task.total for task in self.tasks)
        said = [f"{self.before + sum(self.ended)} of {self.before + len(self.tasks)} have ended"]
        said += [f"{done:,} of {total:,} {self.unit}"] if self.unit else []
        said += [left] if (left := self.left_in_words()) else []
        now = f"; now {', '.join(named[:MOST_NAMED] + more)}" if named else ""
        return f"{self.what}: {', '.join(said)}{now}"


class _Bars:
    """A bar for each task that runs, under one of all."""

    def __init__(self, progress: Progress, course: Course) -> None:
        self.progress = progress
        self.everything = progress.add_task(course.what, total=None, note="")
        self.bars = [progress.add_task(task.name, total=task.total, note="", visible=False) for task in course.tasks]

    def draw(self, course: Course) -> None:
        """Show how things stand."""
        total, ended = course.before + len(course.tasks), course.before + sum(course.ended)
        self.progress.update(self.everything, total=total, completed=ended, note=course.left_in_words())
        for n, (bar, task) in enumerate(zip(self.bars, course.tasks, strict=False)):
            visible = course.running[n] and task.total > 1
            about = {
                "description": task.name,
                "total": task.total,
                "completed": course.units(n),
                "note": course.notes[n],
            }
            self.progress.update(bar, visible=visible, **about)


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` each time so many seconds have gone by, beside the body."""
    stop = Event()

    def beat() -> None:
        while not stop.wait(seconds):
            act()

    beating = Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        stop.set()
        beating.join()


def moves(console: Console) -> bool:
    """Can bars be drawn there? FORCE_COLOR makes rich say so of files too."""
    return console.is_interactive and console.file.isatty()


@contextmanager
def lines(say: Callable[[], str]) -> Iterator[None]:
    """Print a line a minute beside the body; none on a terminal, where there are bars."""
    if moves(Console(file=sys.stderr)):
        yield
        return
    with every(LINE_SECONDS, lambda: print(say(), file=sys.stderr, flush=True)):
        yield


@contextmanager
def shown(course: Callable[[], Course]) -> Iterator[None]:
    """Show beside the body, on stderr, how far a course is.

    Args:
        course: as it is when it is asked for.
    """
    console = Console(file=sys.stderr)
    if not moves(console):
        with lines(lambda: course().line()):
            yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bars = _Bars(progress, course())
        with every(DRAW_SECONDS, lambda: bars.draw(course())):
            yield


def tracked(items: Iterable[Item], what: str) -> Iterator[Item]:
    """Items one after the other, shown as a course."""
    items = list(items)
    course = Course(what, [Piece(str(item)) for item in items])
    with shown(lambda: course):
        for number, item in enumerate(items):
            course.begin(number)
            yield item
            course.end(number)
