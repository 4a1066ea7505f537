"""How far long work is: what is shown on a terminal and in a log, by a clock that stands where it is put."""

import io
import sys
from types import SimpleNamespace

import pytest

from stemrepro.common.progress import Course, duration, track


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", clock)
    return clock


def task(name, total, cost=1.0, resumes=False):
    return SimpleNamespace(name=name, total=total, cost=cost, resumes=resumes)


def test_a_log_gets_a_line_a_minute_with_the_time_left_by_cost(clock, capsys):
    """A quarter of the cost in a minute: three more. In two minutes 1/4 + 3/4 x 4/10: nine elevenths of two minutes."""
    course = Course("training", [task("cheap seed 0", 16), task("dear seed 0", 10, 3.0)], done=4)
    for step in range(1, 16):
        clock.now += 3.75
        course.report(0, step, "loss 3.912")
    clock.now += 3.75
    course.end(0)
    for step in range(1, 5):
        clock.now += 15
        course.report(1, step, "loss 4.1")
    course.close()
    assert capsys.readouterr().err.split("\n") == [
        "training: 25%, 03:00 left, 5 of 6, cheap seed 0",
        "training: 55%, 01:38 left, 5 of 6, dear seed 0, loss 4.1",
        "",
    ]


def test_what_was_done_before_a_resumed_task_began_again_is_no_pace(clock, capsys):
    """It goes on at 500 of 800 and makes 30 steps in a minute: 270 take nine."""
    course = Course("training", [task("run", 800, resumes=True)])
    course.report(0, 0)
    course.report(0, 500)
    clock.now += 60
    course.report(0, 530)
    assert capsys.readouterr().err == "training: 66%, 09:00 left, 0 of 1, run\n"


def test_a_long_line_of_a_log_is_not_cut(clock, capsys):
    """Half of a speed reads as another speed."""
    name, pace = "dense-third-size@own-rate seed 0", "loss 4.213, 912,345 tokens/s"
    course = Course("training", [task(name, 10)])
    clock.now += 60
    course.report(0, 5, pace)
    assert capsys.readouterr().err == f"training: 50%, 01:00 left, 0 of 1, {name}, {pace}\n"


def test_what_other_processes_say_late_changes_nothing(clock, capsys):
    course = Course("training", [task("run", 10), task("other", 10)])
    course.report(1, 0)
    course.end(0)
    clock.now += 60
    course.report(0, 4)
    assert capsys.readouterr().err == ""
    assert course.running() == ["other"]
    course.report(1, 0)
    assert capsys.readouterr().err == "training: 50%, 01:00 left, 1 of 2, other\n"


def test_a_terminal_shows_a_bar_that_goes_away(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    course = Course("training", [task("dense seed 0", 800), task("stem-full seed 0", 800)], done=1)
    clock.now += 10
    course.report(0, 400, "loss 3.912")
    drawn = sys.stderr.getvalue().split("\r")
    assert "training:  25%|##5       | 00:10 so far, 00:30 left, 1 of 3, dense seed 0, loss" in drawn[-1]
    course.close()
    assert sys.stderr.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""


def test_items_one_after_the_other(clock, capsys):
    seen = []
    for item in track(["rivals", "needle", "scaling"], "analyses"):
        clock.now += 45
        seen.append(item)
    assert seen == ["rivals", "needle", "scaling"]
    assert capsys.readouterr().err == "analyses: 67%, 00:45 left\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (59.6, "1 min"),
        (3571, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (172_801, "2 days"),
        (6.4e7, "2 years"),
        (60 * 5_678_403_441, "10,800 years"),
    ],
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words
