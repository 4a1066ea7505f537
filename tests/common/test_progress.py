"""How far long work is: the time left by a clock of our own, and who is told what."""

import io
import sys
from threading import Event
from typing import ClassVar

import pytest

from stemrepro.common import progress
from stemrepro.common.progress import Course, Piece, duration, every, lines, moves, shown, tracked


class Clock:
    """Stands where it is put."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def course(pieces, side=1, **more):
    clock = Clock()
    return Course("training", pieces, side, clock=clock, **more), clock


def test_time_left_is_known_before_anything_has_ended():
    """Two of four runs of 100 steps at a time; a step takes 3 seconds: 2 x 300 seconds in all, of which 60 are gone."""
    runs, clock = course([Piece(f"run {n}", 100) for n in range(4)], side=2)
    assert runs.left() is None
    runs.begin(0), runs.begin(1)
    assert runs.left() is None
    clock.now = 60.0
    runs.report(0, 20), runs.report(1, 20)
    assert runs.left() == pytest.approx(540)


def test_dear_tasks_count_by_their_cost():
    """The first costs a quarter of the second: 10 seconds for it are 40 for the other."""
    runs, clock = course([Piece("cheap", 50, 1.0), Piece("dear", 10, 4.0)])
    runs.begin(0)
    clock.now = 10.0
    runs.end(0)
    assert runs.left() == pytest.approx(40)


def test_the_longest_of_the_last_ones_decides():
    """With two at a time, 10 seconds for a unit: 1 and 9 units left are not 50 seconds but 90."""
    runs, clock = course([Piece("short", 2, 2.0), Piece("long", 10, 10.0)], side=2)
    runs.begin(0), runs.begin(1)
    clock.now = 10.0
    runs.report(0, 1), runs.report(1, 1)
    assert runs.left() == pytest.approx(90)


def test_what_was_done_before_a_resumed_task_began_again_is_no_pace():
    """It goes on at 500 of 800 and makes 30 steps in 10 seconds: 270 are left."""
    runs, clock = course([Piece("run", 800, resumes=True)])
    clock.now = 3.0
    runs.begin(0)
    runs.report(0, 500)
    assert runs.left() is None
    clock.now = 13.0
    runs.report(0, 530)
    assert runs.left() == pytest.approx(90)


def test_what_other_processes_say_late_changes_nothing():
    runs, clock = course([Piece("run", 10), Piece("other", 10)])
    runs.begin(0)
    clock.now = 5.0
    runs.end(0)
    runs.begin(0), runs.report(0, 4)
    assert runs.units(0) == 10
    assert runs.running == [False, False]
    assert runs.left() == pytest.approx(5)


def test_a_line_says_what_runs_what_is_done_and_how_long_it_will_take():
    runs, clock = course([Piece(f"dense seed {n}", 800) for n in range(3)], side=2, unit="steps", done=4)
    assert runs.line() == "training: 4 of 7 have ended, 0 of 2,400 steps"
    runs.begin(0), runs.begin(1)
    clock.now = 60.0
    runs.end(0), runs.report(1, 400, "loss 3.912")
    assert runs.line() == (
        "training: 5 of 7 have ended, 1,200 of 2,400 steps, about 1 min left; now dense seed 1 (400 of 800, loss 3.912)"
    )


def test_shares_where_units_mean_nothing_and_no_more_names_than_fit():
    scores, clock = course([Piece(f"run {n}", 50) for n in range(6)], side=6)
    for n in range(6):
        scores.begin(n)
    clock.now = 30.0
    scores.report(0, 25)
    assert scores.line().endswith("; now run 0 (50%), run 1 (0%), run 2 (0%), run 3 (0%), 2 more")
    single, _ = course([Piece("rivals")])
    single.begin(0)
    assert single.line() == "training: 0 of 1 have ended; now rivals"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3569, "59 min"),
        (3571, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (172_799, "48 h 00 min"),
        (172_801, "2 days"),
        (6.3e7, "729 days"),
        (6.4e7, "2 years"),
        (60 * 5_678_403_441, "10,800 years"),
    ],
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words


class Minutes(Event):
    """Instead of waiting, so many times have gone by once the body says go; then the body may end."""

    asked: ClassVar[list] = []
    go, over = Event(), Event()

    def __init__(self):
        super().__init__()
        self.times = 3

    def wait(self, timeout=None):
        assert Minutes.go.wait(30)
        Minutes.asked.append(timeout)
        if not self.times:
            Minutes.over.set()
            return True
        self.times -= 1
        return False


@pytest.fixture
def minutes(monkeypatch):
    """minutes() lets three waits go by, as fast as they can."""
    Minutes.asked, Minutes.go, Minutes.over = [], Event(), Event()
    monkeypatch.setattr(progress, "Event", Minutes)

    def go_by():
        Minutes.go.set()
        assert Minutes.over.wait(30)

    return go_by


def test_something_happens_each_time_so_many_seconds_have_gone_by(minutes):
    said = []
    with every(7.0, lambda: said.append("tick")):
        minutes()
    assert said == ["tick"] * 3
    assert set(Minutes.asked) == {7.0}


def test_without_a_terminal_there_is_a_line_a_minute(minutes, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with lines(lambda: "data corpus of text: 1 min so far"):
        minutes()
    assert sys.stderr.getvalue() == "data corpus of text: 1 min so far\n" * 3
    assert set(Minutes.asked) == {60.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_there_are_bars_and_no_lines(minutes, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    for name, value in {"TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    with lines(lambda: "a line"):
        pass  # nothing was started that would wait
    assert sys.stderr.getvalue() == ""
    runs, clock = course([Piece("dense seed 0", 800)], done=1)
    runs.begin(0)
    clock.now = 10.0
    runs.report(0, 400, "loss 3.912")
    with shown(lambda: runs):
        minutes()
    drawn = sys.stderr.getvalue()
    for words in ("dense seed 0", "400/800", "loss 3.912", "about 10 s left", "1/2"):
        assert words in drawn
    assert "have ended" not in drawn


@pytest.mark.parametrize(
    ("environment", "file", "can"),
    [({}, Terminal(), True), ({}, io.StringIO(), False), ({"TERM": "dumb"}, Terminal(), False), ({"FORCE_COLOR": "1"}, io.StringIO(), False)],
)  # fmt: skip
def test_where_bars_can_be_drawn(environment, file, can, monkeypatch):
    from rich.console import Console

    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert moves(Console(file=file)) == can


def test_items_one_after_the_other(minutes, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    seen = []
    for item in tracked(["rivals", "needle"], "analyses"):
        minutes()
        seen.append(item)
    assert seen == ["rivals", "needle"]
    assert sys.stderr.getvalue() == "analyses: 0 of 2 have ended; now rivals\n" * 3
