"""Steps are done once, and again when what they follow from has changed."""

import json
import threading
from dataclasses import replace

import pytest

from stemrepro.common import code_hash
from stemrepro.pipeline.steps import MADE, Step


@pytest.fixture
def chain(tmp_path):
    """chain(about, ...) -> two steps, the second of which reads the first's file; and what was made so far."""
    code, made = tmp_path / "code.py", []
    code.write_text("x = 1")

    def steps(first="a", second="b"):
        code_hash._read.cache_clear()

        def work(name):
            made.append(name)
            (tmp_path / name).write_text("")

        one = Step("one", tmp_path, (tmp_path / "one",), first, (code,), (), lambda: work("one"))
        two = Step("two", tmp_path, (tmp_path / "two",), second, (), (one,), lambda: work("two"))
        return one, two

    return steps, made, code


def done(steps):
    return [step.name for step in steps if step.do()]


def test_a_step_is_done_once(chain):
    steps, made, _ = chain
    assert done(steps()) == ["one", "two"]
    assert done(steps()) == []
    assert made == ["one", "two"]


@pytest.mark.parametrize(("changed", "again"), [({"first": "other"}, ["one", "two"]), ({"second": ["other"]}, ["two"])])
def test_other_settings_do_it_again_with_what_follows(chain, changed, again):
    steps, *_ = chain
    done(steps())
    assert done(steps(**changed)) == again
    assert done(steps(**changed)) == []


def test_other_code_does_it_again_and_a_comment_does_not(chain):
    steps, _, code = chain
    done(steps())
    code.write_text("x = 1  # why")
    assert done(steps()) == []
    code.write_text("x = 2")
    assert done(steps()) == ["one", "two"]


def test_a_file_that_is_gone_is_made_again_alone(chain, tmp_path):
    steps, *_ = chain
    done(steps())
    (tmp_path / "one").unlink()
    assert done(steps()) == ["one"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"one": 3}'])
def test_a_damaged_memory_makes_all_again(chain, tmp_path, content):
    steps, *_ = chain
    done(steps())
    (tmp_path / MADE).write_text(content)
    assert done(steps()) == ["one", "two"]
    assert json.loads((tmp_path / MADE).read_text()).keys() == {"one", "two"}


def test_files_that_failed_work_left_are_not_the_old_ones(chain, tmp_path):
    """Settings that change, a kill on the way, and settings that are set back."""
    steps, *_ = chain
    done(steps())

    def fail():
        (tmp_path / "one").write_text("half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        replace(steps(first="other")[0], make=fail).do()
    assert done(steps()) == ["one"]


def test_a_step_that_another_process_does_is_waited_for(chain, tmp_path):
    steps, made, _ = chain
    one, _ = steps()
    begun, ends = threading.Event(), threading.Event()

    def slowly():
        begun.set()
        assert ends.wait(10)
        (tmp_path / "one").write_text("")

    first = threading.Thread(target=replace(one, make=slowly).do)
    first.start()
    assert begun.wait(10)
    second = threading.Thread(target=one.do)
    second.start()
    ends.set()
    first.join(10)
    second.join(10)
    assert made == []  # the first did it
